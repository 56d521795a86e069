#pragma once

// Servers by Slurm: each worker is a job of its own on one node, submitted with sbatch, ended with
// scancel, looked at with squeue. So a lost node ends one job and nobody else's, and a replacement
// is a new job (docs/cloud.md). Any thread, several at once.

#include <memory>
#include <string>
#include <vector>

#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks {

struct SlurmProviderOptions {
  std::string job;  ///< part of every Slurm job's name
  /// Of the jobs' output. Slurm fails a job whose node has no such folder. Empty = none.
  std::string log_dir;
  /// More options for sbatch, for example --gres=gpu:1. A worker gets a node of its own unless they
  /// say what part of one.
  std::vector<std::string> sbatch_words;
  std::uint32_t notice_seconds = 60;  ///< of warning (SIGUSR1) before a job's time is over
  std::uint32_t count_max = 32;       ///< jobs in one request
  Duration timeout = seconds(30);     ///< of each of Slurm's programs
};

/// Of an offer, the zone is the partition and the machine type a constraint (a node feature); both
/// may be empty. The market is remembered only: what may be preempted, the partition decides. A
/// job's label is its name, its request id stands in its comment.
[[nodiscard]] std::unique_ptr<Provider> make_slurm_provider(SlurmProviderOptions options);

}  // namespace mayfly::cloud_hooks
