#pragma once

// What of a job follows from its settings and from what it is told, without a network or a data
// set. Any thread.

#include <memory>

#include "base/result.hpp"
#include "engine/job/job.hpp"

namespace mayfly::engine {

/// The part of the fingerprint that jobs of networks and of programs have alike: settings on which
/// the bits depend, or that workers must agree on. It begins with the version and the model.
[[nodiscard]] Fingerprint common_fingerprint(const Job& job);
/// How gradients travel. kInvalidInput if the settings do not go together.
[[nodiscard]] Result<void> derive_exchange(Job& job);
/// The numbers of steps, and the schedule of the learning rate, from the number of samples.
void derive_steps(Job& job);

/// A job whose workers are programs of the user's own, before they have said what it is.
[[nodiscard]] Result<std::unique_ptr<Job>> begin_program(const JobConfig& config);
/// The rest of such a job, from `job.facts.program`: the program says how long the job is and how
/// large its batches are, which `job.config` then has, too. kInvalidInput if such a job is
/// impossible.
[[nodiscard]] Result<void> derive_program(Job& job);

}  // namespace mayfly::engine
