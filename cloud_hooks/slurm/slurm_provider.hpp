#pragma once

// Servers from Slurm: each worker is a Slurm job of its own on one node, submitted with sbatch,
// ended with scancel and listed with squeue. So a lost node ends only one worker's job, and a
// replacement is a new job (docs/slurm.md). Namespace slurm has the parts that start no process.
// Any thread, several at once.

#include <memory>
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

namespace mayfly::cloud_hooks {

struct SlurmProviderOptions {
  std::string job;  ///< part of every Slurm job's name
  /// Folder for the jobs' output. Slurm fails a job whose node has no such folder. Empty = none.
  std::string log_dir;
  /// More options for sbatch, for example --gres=gpu:1. A worker gets a node of its own unless they
  /// request a part of one.
  std::vector<std::string> sbatch_words;
  std::uint32_t count_max = 32;    ///< jobs in one request
  Duration timeout = seconds(30);  ///< of each of Slurm's programs
};

/// The zone of an offer is the partition, its machine type a constraint (a node feature); both may
/// be empty. The market is only stored: the partition decides which jobs may be preempted. A job's
/// label is its name in Slurm, its request id is its comment.
[[nodiscard]] std::unique_ptr<Provider> make_slurm_provider(SlurmProviderOptions options);

}  // namespace mayfly::cloud_hooks
