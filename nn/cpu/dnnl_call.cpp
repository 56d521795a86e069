#include "nn/cpu/dnnl_call.hpp"

#include "base/check.hpp"

namespace mayfly::nn::cpu {

DnnlCall::DnnlCall(dnnl::primitive primitive,
                   std::initializer_list<std::pair<int, dnnl::memory>> arguments)
    : primitive_(std::move(primitive)) {
  for (const auto& [name, memory] : arguments) {
    memories_.push_back(memory);
    arguments_.push_back({name, memory.get()});
  }
}

void DnnlCall::run(const dnnl::stream& stream) const {
  const dnnl_status_t status = dnnl_primitive_execute(
      primitive_.get(), stream.get(), static_cast<int>(arguments_.size()), arguments_.data());
  ENSURE(status == dnnl_success, "a prepared oneDNN primitive has all its arguments");
}

}  // namespace mayfly::nn::cpu
