#pragma once

// Servers from Slurm: each worker is a Slurm job of its own on one node, submitted with sbatch,
// ended with scancel and listed with squeue. So a lost node ends only one worker's job, and a
// replacement is a new job (docs/slurm.md). Any thread, several at once.

#include <memory>
#include <string>
#include <vector>

#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks {

struct SlurmProviderOptions {
  std::string job;  ///< part of every Slurm job's name
  /// Folder for the jobs' output. Slurm fails a job whose node has no such folder. Empty = none.
  std::string log_dir;
  /// More options for sbatch, for example --gres=gpu:1. A worker gets a node of its own unless they
  /// request a part of one.
  std::vector<std::string> sbatch_words;
  std::uint32_t notice_seconds = 60;  ///< of warning (SIGUSR1) before a job's time is over
  std::uint32_t count_max = 32;       ///< jobs in one request
  Duration timeout = seconds(30);     ///< of each of Slurm's programs
};

/// The zone of an offer is the partition, its machine type a constraint (a node feature); both may
/// be empty. The market is only stored: the partition decides which jobs may be preempted. A job's
/// label is its name in Slurm, its request id is its comment.
[[nodiscard]] std::unique_ptr<Provider> make_slurm_provider(SlurmProviderOptions options);

}  // namespace mayfly::cloud_hooks
