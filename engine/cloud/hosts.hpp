#pragma once

// Workers on hosts that are reached by ssh (`mayfly train --hosts`, docs/hosts.md): the provider's
// options from the settings, and the preparation of the hosts before a job begins.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cloud_hooks/ssh/ssh_provider.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// The hosts of the settings `hosts` or `hostfile`. kInvalidInput with the part that is wrong.
[[nodiscard]] Result<std::vector<cloud_hooks::ssh::Host>> hosts_of(const JobConfig& config);

/// The arguments of workers on hosts: cloud_worker_args, and this process's settings that concern
/// workers unless cloud_worker_args contains them.
[[nodiscard]] std::string worker_args_on_hosts(const JobConfig& config);

/// The options of the ssh provider for the job with that label. Hashes the program's archive.
[[nodiscard]] Result<cloud_hooks::SshProviderOptions> ssh_options(const JobConfig& config,
                                                                  const std::string& label);

/// The setting `workers` of a job on hosts for which no number is given.
inline constexpr std::uint32_t kEverySlot = 0;

/// The settings completed for hosts: the number of workers if it is kEverySlot, the program's
/// archive (packed into `cache_dir` if needed), and the arguments of workers. Copies the program to
/// the hosts and passes a line about each of them to `print`. kInvalidInput with the reasons if
/// hosts cannot be used, kIo if the program cannot be packed; if the job was begun by an earlier
/// process (`is_begun`), its workers may be running, and the reasons are only passed to `print`.
[[nodiscard]] Result<JobConfig> prepare_hosts(const JobConfig& config, const std::string& cache_dir,
                                              bool is_begun,
                                              const std::function<void(const std::string&)>& print);

}  // namespace mayfly::engine
