// `mayfly ps-server`: holds shards of the parameters until the job is over.

#include "engine/parameter_server/ps_server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/log.hpp"
#include "engine/network_interface.hpp"
#include "engine/parameter_server/ps_job.hpp"
#include "engine/parameter_server/ps_link.hpp"
#include "engine/parameter_server/sgd_shard.hpp"
#include "engine/records.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kLinger = seconds(10);  // for workers that still fetch the state
constexpr Duration kLingerStep = milliseconds(20);

/// Sends the records of steps; on the first shard's thread.
class StepRecorder {
 public:
  StepRecorder(const Job& job, const PsJob& ps) : job_(job), ps_(ps) {}

  /// The client's life is longer than that of the shards.
  void begin(elastic::MemberClient& client, const PsLink& link) {
    link_ = &link;
    client_ = &client;
  }

  void add(const parameter_server::UpdateFacts& facts) {
    slices_ += facts.update.slices.size();
    record_.samples += facts.samples;
    record_.correct += facts.correct;
    microbatches_ += facts.microbatches;
    loss_ += facts.loss;
    for (std::size_t lane = 0; lane < hash_.size(); ++lane) {
      hash_[lane] += facts.sample_hash[lane];
    }
    if (slices_ >= ps_.plan.slices_per_step()) {
      send(facts);
    }
  }

 private:
  void send(const parameter_server::UpdateFacts& facts) {
    const std::uint64_t committed = facts.update.committed_before + facts.update.slices.size();
    record_.step = committed / ps_.plan.slices_per_step();
    record_.loss = loss_ / microbatches_;
    record_.learning_rate = ps_.rate_of(job_, facts.update.committed_before, facts.microbatches);
    record_.sample_hash =
        fmt::format("{:08x}{:08x}{:08x}{:08x}", hash_[3], hash_[2], hash_[1], hash_[0]);
    if (const std::optional<elastic::View> view = link_->view()) {
      record_.view = value(view->id);
      record_.members = static_cast<std::uint32_t>(
          std::count_if(view->members.begin(), view->members.end(),
                        [](const auto& m) { return m.address == kPsWorkerAddress; }));
    }
    const Instant now = monotonic_now();
    record_.seconds = last_.ns == 0 ? 0 : to_seconds(now - last_);
    last_ = now;
    client_->send_report(encode_record(record_));
    record_ = {};
    hash_ = {};
    slices_ = 0;
    microbatches_ = 0;
    loss_ = 0;
  }

  const Job& job_;
  const PsJob& ps_;
  const PsLink* link_ = nullptr;
  elastic::MemberClient* client_ = nullptr;
  StepRecord record_;
  std::array<std::uint32_t, 4> hash_{};
  std::uint64_t slices_ = 0;
  std::uint32_t microbatches_ = 0;
  double loss_ = 0;
  Instant last_;
};

class ServerListener final : public parameter_server::ShardListener {
 public:
  ServerListener(const Job& job, const PsJob& ps) : recorder_(job, ps) {}

  /// Before any worker can have been let in.
  void begin(elastic::MemberClient& client, PsLink& link) {
    recorder_.begin(client, link);
    client_ = &client;
    link_ = &link;
  }
  void record_steps() { records_ = true; }

  void on_update(const parameter_server::UpdateFacts& facts) override {
    if (records_) {
      recorder_.add(facts);
    }
  }
  void on_quiet() override { link_->quiet(); }
  void on_over() override { link_->finished(); }
  void on_straggler(const parameter_server::StragglerChange& change) override {
    client_->send_report(encode_record(NoteRecord{
        "straggler",
        fmt::format("worker {} takes {:.2f} times as long as the others: {}", value(change.worker),
                    change.ratio, change.is_slow ? "a straggler" : "none any more")}));
  }

 private:
  StepRecorder recorder_;
  elastic::MemberClient* client_ = nullptr;
  PsLink* link_ = nullptr;
  bool records_ = false;
};

std::set<MemberId> workers_of(const elastic::View& view) {
  std::set<MemberId> workers;
  for (const elastic::ViewMember& member : view.members) {
    if (member.address == kPsWorkerAddress) {
      workers.insert(member.id);
    }
  }
  return workers;
}

}  // namespace

struct PsServer::Parts {
  Parts(const Job& j, PsJob p) : job(j), ps(std::move(p)), layout(j.model) {}
  const Job& job;
  const PsJob ps;
  const ReductionLayout layout;
  Step committed{};
  std::vector<std::unique_ptr<SgdShard>> states;
  std::vector<std::unique_ptr<ServerListener>> listeners;
  std::vector<std::unique_ptr<parameter_server::Shard>> shards;  // threads use the rest
};

PsServer::PsServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
PsServer::~PsServer() = default;

Result<std::unique_ptr<PsServer>> PsServer::start(const Job& job, const ReductionLayout& layout,
                                                  const nn::ModelState& initial) {
  Result<PsJob> ps = make_ps_job(job, layout, value(initial.committed));
  if (!ps.ok()) {
    return std::move(ps).error();
  }
  const JobConfig& config = job.config;
  const Result<std::string> host = listening_host(config.bind_host);
  if (!host.ok()) {
    return host.error();
  }
  auto parts = std::make_unique<Parts>(job, std::move(ps).value());
  parts->committed = initial.committed;
  for (std::uint32_t i = 0; i < config.shards; ++i) {
    parameter_server::ShardOptions options;
    options.number = config.ps_index * config.shards + i;
    options.shards = parts->ps.shards;
    options.snapshots = parts->ps.snapshots;
    options.host = host.value();
    options.payload_hashes = config.ps_hashes;
    options.stragglers = parameter_server::parse_straggler_policy(config.straggler).value();
    options.straggling.slow = config.straggler_factor;
    options.straggling.clear = 1 + (config.straggler_factor - 1) / 2;
    options.straggling.windows = config.straggler_windows;
    parts->states.push_back(std::make_unique<SgdShard>(job, parts->ps, layout,
                                                       parts->ps.ranges[options.number], initial));
    parts->listeners.push_back(std::make_unique<ServerListener>(job, parts->ps));
    if (options.number == 0) {
      parts->listeners.back()->record_steps();
    }
    Result<std::unique_ptr<parameter_server::Shard>> shard = parameter_server::Shard::start(
        options, parts->ps.plan, *parts->states.back(), *parts->listeners.back());
    if (!shard.ok()) {
      return std::move(shard).error();
    }
    parts->shards.push_back(std::move(shard).value());
  }
  return std::unique_ptr<PsServer>(new PsServer(std::move(parts)));
}

std::string PsServer::address() const {
  std::vector<std::string> shards;
  for (const auto& shard : parts_->shards) {
    shards.push_back(shard->address());
  }
  return server_address(parts_->job.config.ps_index, shards);
}

elastic::member_effect::Leave PsServer::run(elastic::MemberClient& client) {
  std::mutex mutex;
  std::condition_variable told;
  PsLink::Hooks hooks;
  hooks.on_view = [this](const elastic::View& view) {
    for (const auto& shard : parts_->shards) {
      shard->set_workers(view.id, view.key, workers_of(view));
    }
  };
  hooks.on_hold = [this] { parts_->shards.front()->hold(); };
  hooks.on_leave = [&] {
    const std::lock_guard lock(mutex);
    told.notify_all();
  };
  const bool has_first_shard = parts_->job.config.ps_index == 0;
  PsLink link(client, parts_->committed, Step{parts_->job.total_steps}, has_first_shard, hooks);
  for (const auto& listener : parts_->listeners) {
    listener->begin(client, link);
  }
  client.start(link);
  client.post(elastic::member_event::Loaded{parts_->committed, 0});
  {
    std::unique_lock lock(mutex);
    while (!link.leave_order().has_value()) {
      told.wait_for(lock, milliseconds(200));
    }
  }
  const Instant deadline = monotonic_now() + kLinger;
  const auto is_used = [](const auto& shard) { return shard->has_connections(); };
  while (std::any_of(parts_->shards.begin(), parts_->shards.end(), is_used) &&
         monotonic_now() < deadline) {
    std::this_thread::sleep_for(kLingerStep);
  }
  report(client);
  elastic::member_effect::Leave leave = *link.leave_order();
  parts_->shards.clear();  // no thread tells the link anything any more
  return leave;
}

/// What each shard did, for events.jsonl.
void PsServer::report(elastic::MemberClient& client) const {
  for (std::size_t i = 0; i < parts_->shards.size(); ++i) {
    const parameter_server::ShardFacts facts = parts_->shards[i]->facts();
    std::string staleness;
    for (const auto& [age, count] : facts.staleness) {
      staleness += fmt::format("{}{}:{}", staleness.empty() ? "" : " ", age, count);
    }
    client.send_report(encode_record(NoteRecord{
        "shard_done",
        fmt::format(
            "shard {}: {} updates, {} slices committed, {} repeats, {} late, {} leased "
            "again, {} mixed, {} at once, {} probes, {} bytes in, {} bytes out, staleness {}",
            parts_->job.config.ps_index * parts_->job.config.shards + i, facts.version,
            facts.committed, facts.repeats, facts.late, facts.reissued, facts.mixed, facts.at_once,
            facts.probes, facts.bytes_in, facts.bytes_out,
            staleness.empty() ? "none" : staleness)}));
  }
}

}  // namespace mayfly::engine
