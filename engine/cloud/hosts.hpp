#pragma once

// Workers on hosts that are reached by ssh (`mayfly train --hosts`, docs/hosts.md): from settings
// to the provider, and what is looked at before a job begins.

#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cloud_hooks/ssh/ssh_provider.hpp"
#include "engine/config/config.hpp"

namespace mayfly::engine {

/// Of `hosts` or `hostfile`. kInvalidInput with the part that is wrong.
[[nodiscard]] Result<std::vector<cloud_hooks::ssh::Host>> hosts_of(const JobConfig& config);

/// What the ssh provider is told, for the job of that label. Hashes the program's archive.
[[nodiscard]] Result<cloud_hooks::SshProviderOptions> ssh_options(const JobConfig& config,
                                                                  const std::string& label);

/// Settings with all that hosts mean for them: how many workers, the program's archive, which is
/// packed into `cache_dir` if need be, and what workers are told. Copies the program to the hosts;
/// `tell` hears how each of them does. kInvalidInput with the reasons if hosts cannot be used; of a
/// job that goes on (`is_begun`) those are only told.
[[nodiscard]] Result<JobConfig> prepare_hosts(const JobConfig& config, const std::string& cache_dir,
                                              bool is_begun,
                                              const std::function<void(const std::string&)>& tell);

}  // namespace mayfly::engine
