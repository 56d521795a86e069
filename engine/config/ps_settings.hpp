#pragma once

// Settings of parameter servers, and what follows from them without the data set; phases in the
// form of Sync-Switch's published launcher (--switch-order 10 --train-steps 400,61200). Pure; no
// thread matters.

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// The job's gradients go through parameter servers.
[[nodiscard]] bool uses_parameter_servers(const JobConfig& config);
/// With --sync or --phases: workers carry the servers (ps colocated).
[[nodiscard]] bool carries_servers(const JobConfig& config);
/// Parameter servers with processes of their own; 0 in all-reduce and if workers carry them.
[[nodiscard]] std::uint32_t dedicated_servers(const JobConfig& config);
/// How many servers the job begins with: as many as workers if they carry them.
[[nodiscard]] std::uint32_t server_count(const JobConfig& config);
/// The server that this worker carries when it first joins: its number. Nothing: servers have
/// processes of their own, or it came to a job that has its servers.
[[nodiscard]] std::optional<std::uint32_t> carried_server(const JobConfig& config);
/// What --phases says, or --sync.
[[nodiscard]] const std::string& phases_text(const JobConfig& config);
/// How many slices a step has if --slices does not say it: as many as workers, or as a backup phase
/// needs; with straggler elastic the most there can be; never more than microbatches.
[[nodiscard]] std::uint32_t slices_per_step(const JobConfig& config);
/// Everything that can be said without the data set and the number of workers; kInvalidInput.
[[nodiscard]] Result<void> check_parameter_servers(const JobConfig& config);
/// The number of servers, and what follows from it; without servers, what needs some. Not a part of
/// the check above: with ps colocated under mpirun the number of workers is known later.
/// kInvalidInput.
[[nodiscard]] Result<void> check_servers(const JobConfig& config);

/// That phases of backup are for as many workers as the job begins with, also known later.
/// kInvalidInput.
[[nodiscard]] Result<void> check_backups(const JobConfig& config);

/// Turns `switch_order` and `train_steps` into `phases` and `steps`, and empties them; nothing if
/// neither is given. One character of the order is a phase: 1 = bsp, 0 = asp. The numbers are the
/// global step at which each phase ends, counted as that launcher counts: a step of bsp, and every
/// push of asp (a slice here), is one. Lengths of asp are rounded to whole steps of the job, and
/// depend on the number of workers. kInvalidInput says what is wrong.
[[nodiscard]] Result<void> spell_out_switch_order(JobConfig& config);

}  // namespace mayfly::engine
