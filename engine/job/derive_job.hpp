#pragma once

// Derives the properties of a job that follow from its settings and facts alone, without a network
// or a data set. Any thread.

#include <memory>

#include "base/result.hpp"
#include "engine/job/job.hpp"

namespace mayfly::engine {

/// The part of the fingerprint that is the same for jobs of networks and of programs: settings on
/// which the bits of the result depend, or on which workers must agree. It begins with the version
/// and the model.
[[nodiscard]] Fingerprint common_fingerprint(const Job& job);
/// Sets how members exchange gradients. kInvalidInput if the settings contradict each other.
[[nodiscard]] Result<void> derive_exchange(Job& job);
/// Sets the numbers of steps and the schedule of the learning rate from the number of samples.
void derive_steps(Job& job);

/// A job whose workers are programs of the user's own, before a program has described it.
[[nodiscard]] Result<std::unique_ptr<Job>> begin_program(const JobConfig& config);
/// Completes such a job from `job.facts.program`: the program sets the number of steps and the
/// sizes of the batches, which are copied to `job.config`. kInvalidInput if the job is impossible.
[[nodiscard]] Result<void> derive_program(Job& job);

}  // namespace mayfly::engine
