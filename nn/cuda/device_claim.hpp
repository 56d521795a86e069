#pragma once

// Private to nn/cuda: one worker per GPU. A worker that is not told which GPU to use takes one that
// no other worker of this machine has claimed; the kernel releases the claim when the process ends
// for any reason.

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

/// The GPU that this process's launcher assigned to it: LOCAL_RANK of torchrun, or the numbers that
/// Open MPI and Slurm give to the processes of a machine. -1: none of them is set.
[[nodiscard]] int local_number();

}  // namespace mayfly::nn::cuda
