#pragma once

// What Slurm's programs print, and what it means. No processes here.

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

/// The lines of squeue --noheader --format=kQueueFormat; a line that is none is left out.
[[nodiscard]] std::vector<ServerStatus> parse_queue(const std::string& text);

/// "[days-][hours:]minutes:seconds", as squeue's %M prints it; none for "INVALID" and the like.
[[nodiscard]] std::optional<Duration> parse_time(const std::string& text);

/// The job's number in what sbatch --parsable prints ("123" or "123;cluster").
[[nodiscard]] std::optional<std::string> parse_submitted(const std::string& text);

/// What a complaint of sbatch, scancel or squeue means for us.
[[nodiscard]] ProviderErrorKind kind_of(const std::string& complaint);

/// True if options of sbatch say what part of a node a job gets.
[[nodiscard]] bool speaks_of_a_share(const std::vector<std::string>& words);

/// The script for sbatch: the start-up text, with MAYFLY_SERVER set to the job's number.
[[nodiscard]] std::string script_of(const std::string& startup_text);

}  // namespace mayfly::cloud_hooks::slurm
