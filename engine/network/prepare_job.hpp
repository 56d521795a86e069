#pragma once

// Prepares a job from a configuration: its data set, its network, and everything that must be equal
// on all workers.

#include <memory>
#include <string>

#include "base/result.hpp"
#include "engine/config/config.hpp"
#include "engine/job/job.hpp"

namespace mayfly::engine {

/// How much of the data set a process opens.
enum class DataUse { kFacts, kTraining };

/// Opens the data, builds the model for its images, and derives the rest. In `config` of the result
/// init_from is the folder to which "latest" resolves now. The process joins the host's store of
/// images only with kTraining. Also fixes the process's instruction set and convolution kernels
/// (nn::cpu::select_isa, select_conv_kernels). The user can correct all errors: exit code 2; but
/// kAborted if `is_called_off` (any thread; empty = never) returned true while the data were
/// opened.
[[nodiscard]] Result<std::unique_ptr<Job>> prepare_job(
    const JobConfig& config, DataUse use = DataUse::kFacts,
    const datasets::CalledOff& is_called_off = {});

/// The network and the data set with which the job's checkpoints are evaluated.
struct TestSet {
  nn::Model model;
  datasets::DatasetPair data;
};
/// Opens the test set in a process that computes on the CPU and does not train. Also fixes the
/// process's instruction set and convolution kernels.
[[nodiscard]] Result<TestSet> open_test_set(const JobConfig& config);

/// Whether this process lacks the data set, the GPU or the user's program (is_program()), so that
/// prepare_job() would fail here but perhaps not on another host.
[[nodiscard]] bool lacks_data_or_device(const JobConfig& config);

/// Prepares a job in a coordinator that has neither the data set nor the device that computes, as
/// far as that is possible. Before complete_job() only its `config` and `microbatches` may be used.
[[nodiscard]] Result<std::unique_ptr<Job>> begin_job(const JobConfig& config);

/// Derives the rest from the facts that a worker reports about its own job. `job.config` is not
/// changed, except that a program sets steps, global_batch, microbatch and evaluate. kInvalidInput
/// if such a job is impossible.
[[nodiscard]] Result<void> complete_job(Job& job, JobFacts facts);

}  // namespace mayfly::engine
