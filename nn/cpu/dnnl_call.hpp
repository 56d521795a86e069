#pragma once

// Private to nn/cpu: a oneDNN primitive together with its arguments, ready to run again and again.
// dnnl::primitive::execute builds its argument list on the heap each time; this does it once.

#include <initializer_list>
#include <oneapi/dnnl/dnnl.hpp>
#include <utility>
#include <vector>

namespace mayfly::nn::cpu {

class DnnlCall {
 public:
  DnnlCall() = default;
  DnnlCall(dnnl::primitive primitive,
           std::initializer_list<std::pair<int, dnnl::memory>> arguments);

  void run(const dnnl::stream& stream) const;

 private:
  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_;  ///< keeps the handles in arguments_ alive
  std::vector<dnnl_exec_arg_t> arguments_;
};

}  // namespace mayfly::nn::cpu
