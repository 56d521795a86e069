#pragma once

// Private to nn/cuda: one worker per GPU. A worker that is not told which GPU to use takes one that
// no other worker of this machine has; the kernel gives it back when the process ends, however it
// ends.

#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::nn::cuda {

class DeviceClaim {
 public:
  DeviceClaim() = default;

  /// Claims the GPU at `bus` by a lock on a file in `folder`. kRefused if another process, or
  /// another claim of this one, has it; kIo if there can be no such file.
  [[nodiscard]] static Result<DeviceClaim> take(const std::string& folder, const std::string& bus);

 private:
  explicit DeviceClaim(UniqueFd lock) : lock_(std::move(lock)) {}

  UniqueFd lock_;
};

/// Which GPU this process was told to use by the launcher it came from: LOCAL_RANK of torchrun,
/// Open MPI's and Slurm's numbers of a process on its machine. -1: none of them is set.
[[nodiscard]] int local_number();

}  // namespace mayfly::nn::cuda
