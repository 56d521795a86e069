#pragma once

// Parses the output of Slurm's programs. Starts no processes.

#include <optional>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks::slurm {

/// The fields that parse_queue() reads, for squeue --format.
inline constexpr const char* kQueueFormat = "%i|%T|%M|%P|%f|%r|%N|%k";

/// The name that all of a job's servers have in Slurm: "mayfly-JOB".
[[nodiscard]] std::string name_of(const std::string& job);

/// Parses the lines of squeue --noheader --format=kQueueFormat; lines of another form are skipped.
[[nodiscard]] std::vector<ServerStatus> parse_queue(const std::string& text);

/// "[days-][hours:]minutes:seconds", as squeue's %M prints it; none for "INVALID" and the like.
[[nodiscard]] std::optional<Duration> parse_time(const std::string& text);

/// The job's number in what sbatch --parsable prints ("123" or "123;cluster").
[[nodiscard]] std::optional<std::string> parse_submitted(const std::string& text);

/// The kind of error for a message of sbatch, scancel or squeue.
[[nodiscard]] ProviderErrorKind kind_of(const std::string& complaint);

/// True if the options of sbatch select a part of a node for the job.
[[nodiscard]] bool requests_part_of_node(const std::vector<std::string>& words);

/// The script for sbatch: the start-up text, with MAYFLY_SERVER set to the job's number.
[[nodiscard]] std::string script_of(const std::string& startup_text);

}  // namespace mayfly::cloud_hooks::slurm
