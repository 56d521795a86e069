#pragma once

// Private to nn/cuda: which GPU a worker uses. The machine must be able to run the engine (decided
// from facts), and the step must fit into the GPU's memory (decided from its plan). Each GPU has
// one worker: a worker that is not told which GPU to use takes one that no other worker of this
// machine has claimed. The kernel releases the claim when the process ends for any reason.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/gpu_facts.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "nn/cuda/step_plan.hpp"

namespace mayfly::nn::cuda {

/// The facts. Versions of cuDNN as the library counts them (base/gpu_facts, library_version).
struct CudnnFacts {
  GpuFacts gpu;
  std::size_t found_cudnn = 0;  ///< cuDNN that was loaded
};

/// The oldest cuDNN with which the choice of convolutions was checked (docs/gpu.md).
inline constexpr std::size_t kCudnnMin = 91100;

/// Ok, or kUnsupported with one line that names the missing part and the remedy.
[[nodiscard]] Result<void> judge(const CudnnFacts& facts);

/// The facts that the bits of a computation depend on, for a job's fingerprint and the log: "NVIDIA
/// H200, sm_90, cuDNN 9.19.0".
[[nodiscard]] std::string identity_of(const CudnnFacts& facts);

/// The identities of a machine's GPUs that can run the engine, each once. If none can, the error
/// for the first GPU.
[[nodiscard]] Result<std::vector<std::string>> kinds_of(const std::vector<CudnnFacts>& gpus);

class DeviceClaim {
 public:
  DeviceClaim() = default;

  /// Claims a GPU by a lock on a file in `folder`, which every user of the machine may lock.
  /// kRefused if another process, or another claim of this one, has it; kIo if the file cannot be
  /// created or locked.
  [[nodiscard]] static Result<DeviceClaim> take(const std::string& folder, const std::string& uuid);

 private:
  explicit DeviceClaim(UniqueFd lock) : lock_(std::move(lock)) {}

  UniqueFd lock_;
};

/// The GPU that a worker uses.
struct ChosenDevice {
  int number = 0;
  DeviceClaim claim;       ///< empty if another worker of this machine has claimed the device
  bool is_shared = false;  ///< another worker of this machine has claimed it
};

/// Claims the first GPU that can run the engine and is not claimed by another process. kRefused if
/// all are claimed, kIo if the unclaimed ones cannot be claimed. At least one GPU must be able to
/// run the engine.
[[nodiscard]] Result<ChosenDevice> claim_free(const std::string& folder,
                                              const std::vector<CudnnFacts>& gpus);

/// The value of an environment variable, or null.
using Variables = std::function<const char*(const char*)>;

/// This process's number among the processes of this machine that one launcher has started:
/// LOCAL_RANK of torchrun, or the variables of Open MPI, mpiexec (MPICH, Intel MPI) and srun. -1:
/// it is not one of several.
[[nodiscard]] int local_number(const Variables& variables);

/// The largest microbatch, below `microbatch`, whose step needs at most `bytes`; 0 if none does.
/// The scratch memory of convolutions is assumed to be that in `options` for any size.
[[nodiscard]] std::uint32_t largest_fitting(const Model& model, std::uint32_t microbatch,
                                            const StepPlanOptions& options, std::size_t bytes);

/// The memory of a GPU when an engine is made.
struct GpuMemory {
  std::size_t free_bytes = 0;
  std::size_t sums_bytes = 0;  ///< the part that sums of gradients need besides the engine
};

/// Ok if a plan's memory fits beside the sums; else kUnsupported with a line that says how much is
/// needed, how much there is, and which microbatch would fit.
[[nodiscard]] Result<void> check_fit(const Model& model, std::uint32_t microbatch,
                                     const StepPlanOptions& options, const StepPlan& plan,
                                     const GpuMemory& memory);

/// The memory that a training set must leave free: CUDA and NCCL allocate memory of their own.
inline constexpr std::size_t kFreeBesideSet = std::size_t{1} << 30;

/// The plan for a GPU: with the training set of `options` in its memory if there is room for it
/// besides everything else, otherwise without it. Errors as check_fit, of the plan without a set.
[[nodiscard]] Result<StepPlan> make_fitting_plan(const Model& model, std::uint32_t microbatch,
                                                 StepPlanOptions options, const GpuMemory& memory);

}  // namespace mayfly::nn::cuda
