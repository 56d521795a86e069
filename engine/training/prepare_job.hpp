#pragma once

// From a configuration to a job: its data set, its network, and all that every worker must have
// equal.

#include <memory>
#include <string>

#include "base/result.hpp"
#include "engine/config/config.hpp"
#include "engine/job/job.hpp"

namespace mayfly::engine {

/// Opens the data, builds the model for its images, and derives the rest; in `config` of the result
/// init_from is the folder that "latest" means now. Also fixes the process's instruction set and
/// convolution kernels (nn::cpu::select_isa, select_conv_kernels). Errors are the user's to mend:
/// exit code 2.
[[nodiscard]] Result<std::unique_ptr<Job>> prepare_job(const JobConfig& config);

/// What the job's checkpoints are measured with: the network and the data set.
struct TestSet {
  nn::Model model;
  datasets::DatasetPair data;
};
/// Opens it for a process that computes on the CPU and takes no part in training. Also fixes the
/// process's instruction set and convolution kernels.
[[nodiscard]] Result<TestSet> open_test_set(const JobConfig& config);

/// Whether prepare_job() fails because the data set or the GPU is not on this machine, as it may be
/// on others.
[[nodiscard]] bool lacks_data_or_device(const JobConfig& config);

/// The same in a coordinator that has neither the data set nor the device that computes: what can
/// be known without the facts. It may not be used for more than its `config` and `microbatches`
/// before complete_job().
[[nodiscard]] Result<std::unique_ptr<Job>> begin_job(const JobConfig& config);

/// Derives the rest from what a worker says of its own job. `job.config` stays as it is.
/// kInvalidInput if no such job can be.
[[nodiscard]] Result<void> complete_job(Job& job, JobFacts facts);

/// What a GPU's engine says of itself (nn::StepEngine::engines), for the fingerprint, which left it
/// open: only a worker's engine knows. Before the worker joins.
void settle_engines(Job& job, const std::string& engines);

}  // namespace mayfly::engine
