#include "engine/cloud.hpp"

#include <fmt/format.h>

#include "base/file.hpp"
#include "base/log.hpp"
#include "engine/cloud_provider.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kReleaseTimeout = seconds(60);

/// What the local provider starts.
std::vector<std::string> local_command(const JobConfig& config, const std::string& endpoint) {
  std::vector<std::string> argv = {"/proc/self/exe",
                                   "worker",
                                   "--config",
                                   config.run_dir + "/config.toml",
                                   "--coordinator",
                                   endpoint,
                                   "--launched",
                                   "--server",
                                   "{id}"};
  Result<std::vector<std::string>> more = split_words(config.cloud_worker_args);
  if (more.ok()) {
    argv.insert(argv.end(), more.value().begin(), more.value().end());
  }
  return argv;
}

bool is_for_people(const std::string& kind) {
  return kind != "cost" && kind != "server_joined" && kind != "server_released";
}

}  // namespace

Cloud::~Cloud() = default;

Result<std::unique_ptr<Cloud>> Cloud::start(CoordinatorProcess& process) {
  const JobConfig& config = process.config();
  if (config.cloud_provider.empty()) {
    return std::unique_ptr<Cloud>();
  }
  if (config.standby) {
    return Error{Errc::kInvalidInput,
                 "a standby asks no provider for servers; leave out "
                 "cloud_provider"};
  }
  const std::string endpoint = process.server().endpoint();
  std::unique_ptr<Cloud> cloud(new Cloud(process));
  cloud->label_ = cloud_label(config);
  // One object for each thread of the driver; processes of this host are one object's children.
  const std::size_t count = config.cloud_provider == "local" ? 1 : 3;
  Result<std::vector<std::unique_ptr<cloud_hooks::Provider>>> made =
      make_cloud_providers(config, cloud->label_, local_command(config, endpoint), count);
  if (!made.ok()) {
    return std::move(made).error();
  }
  cloud->providers_ = std::move(made).value();
  Result<cloud_hooks::ReplacementOptions> options =
      replacement_options(config, cloud->providers_[0]->capabilities());
  if (!options.ok()) {
    return std::move(options).error();
  }
  Result<std::string> text = startup_text(config, endpoint, true);
  if (!text.ok()) {
    return std::move(text).error();
  }
  options.value().startup_text = std::move(text).value();
  cloud->workers_max_ = options.value().max;
  cloud->remember({0, 0, 0, 0, options.value().spent_before, options.value().per_hour_before});
  auto& providers = cloud->providers_;
  cloud->driver_ = std::make_unique<cloud_hooks::ProviderDriver>(
      std::move(options).value(),
      cloud_hooks::ProviderLanes{*providers.front(), *providers[count / 2], *providers.back()},
      *cloud);
  return cloud;
}

void Cloud::look() {
  std::vector<cloud_hooks::WorkerSeen> seen;
  for (const elastic::MemberStatus& member : process_.server().status().members) {
    cloud_hooks::WorkerSeen worker;
    worker.member = member.id;
    worker.server = member.server;
    worker.leaves = member.phase == "leaving";
    worker.speed = member.microbatch_ms > 0 ? 1 / double{member.microbatch_ms} : 0;
    seen.push_back(std::move(worker));
  }
  driver_->workers(std::move(seen));
}

Result<std::string> Cloud::scale(std::uint32_t workers) {
  if (workers > workers_max_) {
    return Error{Errc::kRefused,
                 fmt::format("at most {} workers: --cloud-max-workers says so", workers_max_)};
  }
  driver_->scale(workers);
  return fmt::format("going to {} workers", workers);
}

void Cloud::finish() {
  if (!driver_->finish(kReleaseTimeout)) {
    const std::string text =
        fmt::format("some servers are not known to be gone; see `mayfly cloud list {}`", label_);
    log::warning(text);
    process_.note("cloud_unsettled", text);
  }
  cloud_hooks::CloudFact last;
  last.kind = "cost";
  last.all = driver_->status();
  on_fact(last);
}

void Cloud::on_fact(const cloud_hooks::CloudFact& fact) {
  std::vector<std::pair<std::string, std::string>> fields;
  if (!fact.detail.empty()) {
    fields.emplace_back("detail", json_string(fact.detail));
  }
  if (!fact.server.empty()) {
    fields.emplace_back("server", json_string(fact.server));
  }
  if (!fact.request_id.empty()) {
    fields.emplace_back("request", json_string(fact.request_id));
  }
  if (fact.ms) {
    fields.emplace_back("ms", json_number(*fact.ms));
  }
  if (fact.cost) {
    fields.emplace_back("cost", json_number(*fact.cost));
  }
  if (fact.all) {
    fields.emplace_back("staying", json_number(std::uint64_t{fact.all->staying}));
    fields.emplace_back("coming", json_number(std::uint64_t{fact.all->coming}));
    fields.emplace_back("billing", json_number(std::uint64_t{fact.all->billing}));
    fields.emplace_back("spent", json_number(fact.all->spent));
    fields.emplace_back("per_hour", json_number(fact.all->per_hour));
    remember(*fact.all);
  }
  const std::string server = fact.server.empty() ? "" : " " + fact.server;
  const std::string line =
      is_for_people(fact.kind) ? fmt::format("{}{}: {}", fact.kind, server, fact.detail) : "";
  process_.recorder().fact(fact.kind, fields, line);
}

void Cloud::remember(const cloud_hooks::PolicyStatus& status) {
  const std::lock_guard lock(memory_mutex_);
  const std::string text =
      print_cloud_memory({status.spent, status.per_hour, wall_clock_seconds()});
  if (Result<void> done = write_file_atomic(cloud_memory_path(process_.config().run_dir), text);
      !done.ok()) {
    log::warning("what servers cost is not remembered: " + done.error().detail);
  }
}

void Cloud::drain(MemberId member) {
  process_.server().drain(member, "its server is given up");
}

void Cloud::stop_job(const std::string& reason) {
  process_.server().stop(reason);
}

}  // namespace mayfly::engine
