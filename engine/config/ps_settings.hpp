#pragma once

// Settings of parameter servers, and the facts that follow from them without the data set; phases
// in the form of Sync-Switch's published launcher (--switch-order 10 --train-steps 400,61200).
// Pure; no thread matters.

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// Whether the job uses parameter servers instead of all-reduce.
[[nodiscard]] bool uses_parameter_servers(const JobConfig& config);
/// Whether workers carry the servers (ps colocated). Valid only with --sync or --phases.
[[nodiscard]] bool carries_servers(const JobConfig& config);
/// Parameter servers with processes of their own; 0 in all-reduce and if workers carry them.
[[nodiscard]] std::uint32_t dedicated_servers(const JobConfig& config);
/// How many servers the job begins with: as many as workers if they carry them.
[[nodiscard]] std::uint32_t server_count(const JobConfig& config);
/// The number of the server that this worker carries when it first joins. Nothing if servers have
/// processes of their own, or if the worker joins a job that has its servers already.
[[nodiscard]] std::optional<std::uint32_t> carried_server(const JobConfig& config);
/// The text of --phases, or of --sync.
[[nodiscard]] const std::string& phases_text(const JobConfig& config);
/// The number of slices of a step if --slices is not given: that of the workers, or the number that
/// a backup phase needs, or with straggler elastic the largest possible one; never more than
/// microbatches.
[[nodiscard]] std::uint32_t slices_per_step(const JobConfig& config);
/// Checks everything that depends on neither the data set nor the number of workers; kInvalidInput.
[[nodiscard]] Result<void> check_parameter_servers(const JobConfig& config);
/// Checks the number of servers and the settings that depend on it; without servers, refuses
/// settings that need them. Not a part of the check above, because with ps colocated under mpirun
/// the number of workers is known only later. kInvalidInput.
[[nodiscard]] Result<void> check_servers(const JobConfig& config);

/// Checks that backup phases are for the number of workers with which the job begins, which is also
/// known later. kInvalidInput.
[[nodiscard]] Result<void> check_backups(const JobConfig& config);

/// Turns `switch_order` and `train_steps` into `phases` and `steps`, and empties them; nothing if
/// neither is given. One character of the order is a phase: 1 = bsp, 0 = asp. The numbers are the
/// global step at which each phase ends, counted as that launcher counts: a step of bsp, and every
/// push of asp (a slice here), is one. Lengths of asp are rounded to whole steps of the job, and
/// depend on the number of workers. kInvalidInput names the error.
[[nodiscard]] Result<void> spell_out_switch_order(JobConfig& config);

}  // namespace mayfly::engine
