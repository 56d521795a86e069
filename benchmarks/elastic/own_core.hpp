#pragma once

// A core for one process alone, so that what a new worker costs the others is what it asks of them
// and not the processor time that its own start takes from them: as if it ran on its own machine.

#include <sched.h>

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace mayfly::bench {

class OwnCore {
 public:
  /// From now on the calling thread, and the threads and processes that it starts, keep to all of
  /// the cores that it may use but the last one. kInvalidInput if it may use one only.
  static Result<OwnCore> reserve();
  OwnCore(OwnCore&& other) noexcept;
  OwnCore(const OwnCore&) = delete;
  OwnCore& operator=(OwnCore&&) = delete;
  OwnCore& operator=(const OwnCore&) = delete;
  /// The calling thread, and what it starts, may use all of them again.
  ~OwnCore();

  /// Changes a command so that what it starts has the last core, and no other one.
  void move_in(std::vector<std::string>& command) const;

 private:
  OwnCore(const cpu_set_t& all, std::size_t last);

  cpu_set_t all_;
  std::size_t last_;
  bool is_reserved_ = true;
};

}  // namespace mayfly::bench
