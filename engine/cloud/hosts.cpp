#include "engine/cloud/hosts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <sstream>
#include <utility>

#include "base/absolute_path.hpp"
#include "base/file.hpp"
#include "base/text.hpp"
#include "base/try_assign.hpp"
#include "cloud_hooks/bundle/program_bundle.hpp"
#include "engine/cloud/cloud_provider.hpp"
#include "engine/config/ps_settings.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kHostfileBytesMax = std::size_t{1} << 20;
constexpr const char* kProcedural = "procedural";

/// A shell on this host would replace "~"; the script on the remote host takes it literally.
std::string remote_folder(std::string path) {
  if (path.starts_with("~/")) {
    path.erase(0, 2);
  }
  while (path.size() > 1 && path.back() == '/') {
    path.pop_back();
  }
  return path;
}

/// Whether the words contain the flag; its value may be the next word or a part of the same one.
bool has_flag(const std::string& words, const std::string& flag) {
  std::istringstream rest(words);
  for (std::string word; rest >> word;) {
    if (word == flag || word.starts_with(flag + "=")) {
      return true;
    }
  }
  return false;
}

}  // namespace

Result<std::vector<cloud_hooks::ssh::Host>> hosts_of(const JobConfig& config) {
  if (config.hostfile.empty()) {
    Result<std::vector<cloud_hooks::ssh::Host>> hosts = cloud_hooks::ssh::parse_hosts(config.hosts);
    return hosts.ok() ? std::move(hosts)
                      : Error{Errc::kInvalidInput, "--hosts: " + hosts.error().detail};
  }
  const Result<std::string> text = read_text_file(config.hostfile, kHostfileBytesMax);
  if (!text.ok()) {
    return Error{Errc::kInvalidInput, "--hostfile: " + text.error().detail};
  }
  Result<std::vector<cloud_hooks::ssh::Host>> hosts =
      cloud_hooks::ssh::parse_hostfile(text.value());
  return hosts.ok() ? std::move(hosts)
                    : Error{Errc::kInvalidInput, config.hostfile + ": " + hosts.error().detail};
}

std::string worker_args_on_hosts(const JobConfig& config) {
  std::string args = config.cloud_worker_args;
  const auto add = [&](bool is_set, const std::string& flag, const std::string& value) {
    if (is_set && !has_flag(config.cloud_worker_args, flag)) {
      args += fmt::format(" {}{}{}", flag, value.empty() ? "" : " ", value);
    }
  };
  add(config.threads != 0, "--threads", std::to_string(config.threads));
  add(config.loader_threads != 0, "--loader-threads", std::to_string(config.loader_threads));
  add(!config.store.empty(), "--store", config.store);
  add(config.store_peers, "--store-peers", "");
  add(!config.prepared_store.empty(), "--prepared-store", config.prepared_store);
  add(!config.data.starts_with(kProcedural), "--data", shell_quoted(absolute_path(config.data)));
  // Outside of the worker's own folder, which is removed together with the worker.
  add(!config.data_from.empty(), "--cache-dir", "../../cache");
  return args;
}

Result<cloud_hooks::SshProviderOptions> ssh_options(const JobConfig& config,
                                                    const std::string& label) {
  TRY_ASSIGN(std::vector<cloud_hooks::ssh::Host> hosts, hosts_of(config));
  Result<std::vector<std::string>> words = split_words(config.ssh);
  if (!words.ok() || words.value().empty()) {
    return Error{Errc::kInvalidInput,
                 "--ssh: " + (words.ok() ? "no program" : words.error().detail)};
  }
  cloud_hooks::SshProviderOptions options;
  options.hosts = std::move(hosts);
  options.words = std::move(words).value();
  options.places = {remote_folder(config.remote_dir), label, "", config.remote_program};
  if (config.remote_program.empty() && !config.cloud_bundle.empty()) {
    const Result<cloud_hooks::BundleFile> bundle = cloud_hooks::open_bundle(config.cloud_bundle);
    if (!bundle.ok()) {
      return Error{Errc::kInvalidInput, "cloud_bundle: " + bundle.error().detail};
    }
    options.bundle = config.cloud_bundle;
    options.places.sha256 = bundle.value().sha256;
  }
  return options;
}

Result<JobConfig> prepare_hosts(const JobConfig& config, const std::string& cache_dir,
                                bool is_begun,
                                const std::function<void(const std::string&)>& print) {
  const Result<std::vector<cloud_hooks::ssh::Host>> hosts = hosts_of(config);
  if (!hosts.ok()) {
    return hosts.error();
  }
  const std::uint32_t slots = std::accumulate(
      hosts.value().begin(), hosts.value().end(), 0U,
      [](std::uint32_t sum, const cloud_hooks::ssh::Host& host) { return sum + host.slots; });
  JobConfig job = config;
  const std::uint32_t servers = dedicated_servers(job) + job.evaluators;
  const std::uint32_t least = std::max(job.workers, 1U);
  if (least + servers > slots) {
    std::string beside;
    if (dedicated_servers(job) > 0) {
      beside += fmt::format(" and {} parameter servers", dedicated_servers(job));
    }
    if (job.evaluators > 0) {
      beside += fmt::format(" and {} evaluators", job.evaluators);
    }
    return Error{Errc::kInvalidInput,
                 fmt::format("--workers {}{}: the hosts have room for {}; write HOST:N for N on "
                             "one",
                             least, beside, slots)};
  }
  if (job.workers == kEverySlot) {
    job.workers = slots - servers;
  }
  job.cloud_max_workers = slots - servers;
  job.cloud_worker_args = worker_args_on_hosts(config);
  if (job.remote_program.empty() && job.cloud_bundle.empty()) {
    Result<std::string> packed = cloud_hooks::packed_own_program(cache_dir, "");
    const std::string lack =
        packed.ok() ? "" : "the program cannot be packed for the hosts: " + packed.error().detail;
    if (!packed.ok() && !is_begun) {
      return Error{Errc::kIo, lack};
    }
    if (!packed.ok()) {
      print(lack + "; running workers continue, and no further ones are started");
    }
    job.cloud_bundle = packed.ok() ? std::move(packed).value() : "";
  }
  TRY_ASSIGN(cloud_hooks::SshProviderOptions options, ssh_options(job, cloud_label(job)));
  options.log_dir.clear();
  const auto provider =
      cloud_hooks::make_ssh_provider(std::move(options), cloud_hooks::make_ssh_memory());
  std::string faults;
  for (const cloud_hooks::Finding& finding : provider->install()) {
    if (finding.ok || is_begun) {
      print(finding.text);
    } else {
      faults += (faults.empty() ? "" : "\n") + finding.text;
    }
  }
  return faults.empty() ? Result<JobConfig>(std::move(job))
                        : Result<JobConfig>(Error{Errc::kInvalidInput, faults});
}

}  // namespace mayfly::engine
