#include "engine/cloud/cloud.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "base/net/addresses.hpp"
#include "base/text.hpp"
#include "base/try_assign.hpp"
#include "engine/cloud/cloud_memory.hpp"
#include "engine/cloud/cloud_plan.hpp"
#include "engine/cloud/cloud_provider.hpp"
#include "engine/cloud/cloud_startup.hpp"
#include "engine/cloud/kept_plan.hpp"
#include "engine/cloud/served_bundle.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kReleaseTimeout = seconds(60);
// A request may take as long as a cloud needs to create a server, and losses come in bursts.
constexpr std::size_t kRequestsAtOnce = 4;
constexpr std::size_t kReleasesAtOnce = 4;
// Evaluators are not members; for the policy they have ids that no member has.
constexpr std::uint64_t kFirstEvaluatorId = std::uint64_t{1} << 62;
// Shorter than every time for which the policy waits before it releases a server.
constexpr Duration kChargePatience = seconds(3);

/// The command line that the local provider starts.
Result<std::vector<std::string>> local_command(const JobConfig& config,
                                               const std::string& coordinators) {
  std::vector<std::string> argv = {"/proc/self/exe",
                                   "worker",
                                   "--config",
                                   config.run_dir + "/config.toml",
                                   "--coordinator",
                                   coordinators,
                                   "--launched",
                                   "--server",
                                   "{id}"};
  const Result<std::vector<std::string>> more = split_words(worker_words(config));
  if (!more.ok()) {
    return Error{Errc::kInvalidInput, "cloud_worker_args: " + more.error().detail};
  }
  argv.insert(argv.end(), more.value().begin(), more.value().end());
  return argv;
}

/// `mayfly scale` may have changed the number since the job began.
std::uint32_t workers_at_first(const CoordinatorProcess& process) {
  const auto memory = read_cloud_memory(process.config().run_dir);
  return process.continues_job() && memory ? memory->workers : process.config().workers;
}

}  // namespace

Cloud::Cloud(CoordinatorProcess& process)
    : process_(process),
      parts_(process.config()),
      target_(process.config(), workers_at_first(process)),
      supply_(process.config()) {
  process_.set_machine_settings([this](const std::string& machine) {
    const elastic::JobStatus status = process_.server().status();
    return parts_.settings_of(machine, status, target_.for_training());
  });
  process_.give_up_with([this](std::uint32_t count) { return give_up(count); });
}

Cloud::~Cloud() {
  process_.set_machine_settings(nullptr);
  process_.give_up_with(nullptr);
}

/// Adds the connected evaluators to the members that the policy sees, so that it keeps their
/// servers and replaces them when they are lost.
void Cloud::add_evaluators(std::vector<cloud_hooks::WorkerSeen>& seen) {
  for (const EvaluatorStatus& evaluator : process_.evaluations().evaluators()) {
    if (evaluator.server.empty()) {
      continue;  // started by hand
    }
    cloud_hooks::WorkerSeen one;
    one.member = MemberId{kFirstEvaluatorId + evaluator.number};
    one.server = evaluator.server;
    one.is_irreplaceable = true;  // is not given up when there are too many workers
    seen.push_back(std::move(one));
    parts_.evaluates(evaluator.server);
  }
}

void Cloud::keep_evaluators() {
  std::vector<cloud_hooks::WorkerSeen> seen;
  add_evaluators(seen);
  if (driver_ != nullptr) {
    driver_->workers(std::move(seen), monotonic_now());
  }
}

Result<std::unique_ptr<Cloud>> Cloud::start(CoordinatorProcess& process) {
  if (process.config().cloud_provider.empty()) {
    return std::unique_ptr<Cloud>();
  }
  std::unique_ptr<Cloud> cloud(new Cloud(process));
  TRY(cloud->prepare());
  cloud->replanning_.emplace(process.config(), process.job().microbatches);
  if (const std::string text = planned_interval(process.config()); !text.empty()) {
    process.note("checkpoint_interval", text);
  }
  cloud->look();
  return cloud;
}

/// Reports all errors in the settings before the first request to the provider.
Result<void> Cloud::prepare() {
  const JobConfig& config = process_.config();
  coordinators_ = worker_coordinators(config, process_.server().endpoint());
  label_ = cloud_label(config);
  std::vector<std::string> argv;  // for others the arguments are a part of a shell's script
  if (config.cloud_provider == "local") {
    TRY_ASSIGN(argv, local_command(config, coordinators_));
  }
  TRY_ASSIGN(providers_,
             make_cloud_providers(config, label_, argv, 1 + kRequestsAtOnce + kReleasesAtOnce));
  if (const auto options = replacement_options(config, providers_[0]->capabilities());
      !options.ok()) {
    return options.error();
  }
  TRY_ASSIGN(startup_text_, make_startup_text());
  return {};
}

Result<std::string> Cloud::make_startup_text() {
  const JobConfig& config = process_.config();
  if (config.cloud_provider == "ssh" || config.cloud_bundle.empty()) {
    TRY_ASSIGN(const std::string token, token_text(config));
    return startup_text(config, coordinators_, token);
  }
  const Result<Endpoint> own = parse_endpoint(process_.server().endpoint());
  ENSURE(own.ok(), "our own endpoint is one");
  TRY_ASSIGN(ServedBundle served,
             serve_bundle(config, coordinators_, own.value().host,
                          [this](const std::string& server, const std::string& output) {
                            worker_failed(server, output);
                          }));
  bundle_ = std::move(served.server);
  return std::move(served.startup_text);
}

/// The last lines that a failed worker printed contain the reason, or are close to it.
void Cloud::worker_failed(const std::string& server, const std::string& output) {
  const std::string text = printable(output);
  process_.recorder().fact({"server_output",
                            {{"server", printable(server)}, {"detail", text}},
                            printable(server) + " ended with: " + last_line_of(text)});
}

void Cloud::take_charge() {
  Result<cloud_hooks::ReplacementOptions> options =
      replacement_options(process_.config(), providers_[0]->capabilities());
  ENSURE(options.ok(), "prepare() has checked the settings");
  options.value().startup_text = startup_text_;
  options.value().microbatches = process_.job().microbatches;
  options.value().up_share = planned_up_share(process_.config().run_dir);
  remember({0, 0, 0, 0, options.value().spent_before, options.value().per_hour_before});
  const auto provider = [this](std::size_t thread) {
    return providers_[thread % providers_.size()].get();
  };
  cloud_hooks::DriverProviders lanes{{}, {}, *provider(0)};
  for (std::size_t i = 0; i < kRequestsAtOnce; ++i) {
    lanes.requests.push_back(provider(1 + i));
  }
  for (std::size_t i = 0; i < kReleasesAtOnce; ++i) {
    lanes.releases.push_back(provider(1 + kRequestsAtOnce + i));
  }
  options.value().target = target_.all();
  auto driver =
      std::make_unique<cloud_hooks::ProviderDriver>(std::move(options).value(), lanes, *this);
  const std::lock_guard lock(driver_mutex_);
  driver_ = std::move(driver);
}

/// Members that are not connected to this coordinator may work for another one, which then owns
/// their servers.
void Cloud::lose_charge() {
  process_.note("cloud_waits",
                "this coordinator is not in charge: it asks for no servers and "
                "releases none");
  end_driver();
}

/// Ends the driver's threads and their calls to the provider. Waits for them without the lock.
void Cloud::end_driver() {
  std::unique_ptr<cloud_hooks::ProviderDriver> driver;
  const std::lock_guard lock(driver_mutex_);
  driver.swap(driver_);
}

void Cloud::look() {
  if (process_.only_ends()) {
    return;  // missing members are not replaced
  }
  const elastic::JobStatus status = process_.server().status();
  if (!status.in_charge) {
    not_in_charge_since_ = not_in_charge_since_.value_or(monotonic_now());
    if (driver_ != nullptr && monotonic_now() - *not_in_charge_since_ > kChargePatience) {
      lose_charge();
    }
    return;
  }
  not_in_charge_since_.reset();
  if (driver_ == nullptr) {
    take_charge();
  }
  if (status.phase == elastic::JobPhase::kEnded) {
    return;  // members that leave now have done their work
  }
  parts_.note_servers(status);
  std::vector<cloud_hooks::WorkerSeen> seen;
  for (const elastic::MemberStatus& member : status.members) {
    cloud_hooks::WorkerSeen worker;
    worker.member = member.id;
    worker.server = member.server;
    worker.leaves = member.phase == elastic::MemberPhase::kLeaving;
    worker.speed = member.microbatch_ms > 0 ? 1 / double{member.microbatch_ms} : 0;
    worker.is_irreplaceable = is_server(member, status.view != ViewId{});
    if (worker.is_irreplaceable && status.view != ViewId{}) {
      target_.saw_parameter_server(member.id);
    }
    seen.push_back(std::move(worker));
  }
  add_evaluators(seen);
  // The order matters: if the policy received the smaller target before the loss, it would give up
  // another server. Between the two calls it requests nothing, because it waits for further losses.
  driver_->workers(std::move(seen), status.news);
  follow_losses(status.members);
  end_if_hopeless(driver_->status());
  replan(status);
}

bool Cloud::is_server(const elastic::MemberStatus& member, bool has_begun) const {
  return has_begun ? process_.recorder().roles().is_server(member.id)
                   : parts_.is_server(member.server);
}

void Cloud::follow_losses(const std::vector<elastic::MemberStatus>& members) {
  const std::uint32_t left = process_.recorder().roles().servers_left();
  const std::lock_guard lock(driver_mutex_);
  if (target_.follow_losses(members, left)) {
    driver_->scale(target_.all());
  }
}

/// Compares the present servers with others. Follows a proposal if the settings say so.
void Cloud::replan(const elastic::JobStatus& status) {
  const Instant now = monotonic_now();
  if (!replanning_->is_due(now, status.phase)) {
    return;
  }
  const std::optional<cloud_hooks::Composition> present = driver_->composition();
  if (!present) {
    return;
  }
  planner::ReplanFacts facts = replan_facts(*present, target_.workers());
  facts.steps_done = static_cast<double>(value(status.committed));
  facts.steps_left = static_cast<double>(process_.job().total_steps) - facts.steps_done;
  facts.elapsed_s = process_.recorder().seconds_at(now);
  facts.spent = driver_->status().spent;
  const planner::ReplanEffects effects = replanning_->compare(now, facts);
  if (effects.proposal) {
    process_.propose(effects.proposal->because);
    process_.recorder().fact(fact_of(*effects.proposal, effects.workers.has_value()));
  }
  if (effects.workers) {
    const Result<std::string> done = scale(*effects.workers, effects.workers_after);
    const std::string& text = done.ok() ? done.value() : done.error().detail;
    json::object fields = {{"detail", text}};
    if (done.ok()) {
      fields["workers"] = *effects.workers;
    }
    process_.recorder().fact({"replan_scaled", fields, text});
  }
}

Result<std::string> Cloud::scale(std::uint32_t workers, std::optional<std::uint32_t> after) {
  const JobConfig& config = process_.config();
  const std::uint32_t most = std::max(config.workers, config.cloud_max_workers);
  if (workers > most) {
    return Error{Errc::kRefused,
                 fmt::format("at most {} workers are allowed (--cloud-max-workers)", most)};
  }
  const std::lock_guard lock(driver_mutex_);
  if (driver_ == nullptr) {
    return Error{Errc::kRefused, "this coordinator is not in charge of the job"};
  }
  target_.set_workers(workers, after);
  supply_.reopen();
  driver_->scale(target_.all());  // through the driver, so that it is also stored
  return fmt::format("changing to {} workers", workers);
}

Result<std::string> Cloud::give_up(std::uint32_t servers) {
  const std::lock_guard lock(driver_mutex_);
  if (driver_ == nullptr) {
    return Error{Errc::kRefused, "this coordinator is not in charge of the job"};
  }
  driver_->give_up(servers);
  return fmt::format("giving up {} of the servers, and replacing {}", servers,
                     servers == 1 ? "it" : "them");
}

void Cloud::close() {
  if (driver_ != nullptr) {
    driver_->close();
  }
}

/// In a job with standbys, a coordinator that is not in charge may end although the servers work
/// for another coordinator. Only a job that is done has ended for all of them.
bool Cloud::may_release_after_end() const {
  const std::optional<JobEnd> end = process_.recorder().news().end();
  return !has_standbys(process_.config()) || (end && end->outcome == elastic::Outcome::kDone);
}

void Cloud::finish() {
  if (process_.only_ends() && may_release_after_end()) {
    take_charge();  // of servers that an earlier coordinator may not have released
  }
  if (driver_ == nullptr || not_in_charge_since_) {
    process_.note("cloud_unsettled", "the job's servers are left to the coordinator in charge");
    end_driver();
    return;
  }
  if (!driver_->finish(kReleaseTimeout)) {
    const std::string text =
        fmt::format("some servers may still exist; see `mayfly cloud list {}`", label_);
    log::warning(text);
    process_.note("cloud_unsettled", text);
  }
  cloud_hooks::CloudFact last;
  last.kind = "cost";
  last.all = driver_->status();
  end_driver();  // its facts use the server, which is destroyed before the summary is written
  on_fact(last);
  remember(*last.all);
}

/// Ends a job without members when no further worker can join. A worker may still join from a
/// server that was granted before, so the job may end later than the reason arises, and without an
/// event.
void Cloud::end_if_hopeless(const cloud_hooks::PolicyStatus& status) {
  const std::string reason = supply_.why_ended();
  if (!reason.empty() && status.no_worker_comes && process_.server().status().members.empty()) {
    process_.server().fail("no worker can start: " + reason);
  }
}

void Cloud::on_fact(const cloud_hooks::CloudFact& fact) {
  if (fact.all) {
    process_.recorder().cost().of_servers({fact.all->spent, fact.all->per_hour, fact.all->billing});
  }
  process_.recorder().fact(events_.event_of(fact));
  if (fact.kind == "server_given_up" || fact.kind == "server_lost" || fact.kind == "server_ended") {
    parts_.gone(fact.server);
  } else if (fact.kind == "server_granted" || fact.kind == "server_adopted") {
    parts_.granted(fact.server, fact.for_evaluator);
  }
  supply_.on_fact(fact);
  if (fact.all) {
    end_if_hopeless(*fact.all);
  }
}

void Cloud::remember(const cloud_hooks::PolicyStatus& status) {
  const std::lock_guard lock(file_mutex_);
  const std::string text = print_cloud_memory(
      {status.spent, status.per_hour, wall_clock_seconds(), target_.lasting_workers()});
  if (Result<void> done = write_file_atomic(cloud_memory_path(process_.config().run_dir), text);
      !done.ok()) {
    log::warning("the cost of the servers could not be stored: " + done.error().detail);
  }
}

void Cloud::drain(MemberId member) {
  if (value(member) >= kFirstEvaluatorId) {
    process_.evaluations().dismiss(value(member) - kFirstEvaluatorId);
    return;
  }
  process_.server().drain(member, "its server is given up");
}

void Cloud::stop_job(const std::string& reason) {
  process_.server().stop(reason);
}

}  // namespace mayfly::engine
