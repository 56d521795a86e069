// Holds shards of the parameters until the job is over.

#include "engine/parameter_server/ps_server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>

#include "base/log.hpp"
#include "base/try_assign.hpp"
#include "engine/config/bind_host.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/parameter_server/ps_job.hpp"
#include "engine/parameter_server/ps_link.hpp"
#include "engine/parameter_server/sgd_shard.hpp"
#include "engine/reduction/model_layout.hpp"
#include "engine/run/records.hpp"
#include "engine/server_roles/ps_servers.hpp"

namespace mayfly::engine {
namespace {

// A worker that writes the checkpoint of a stopped job fetches the state when this server has its
// order to leave. The server waits so long without sending any byte, and so long in all (a worker
// that has no order yet may train on), which is how long the coordinator waits for that checkpoint.
constexpr Duration kLinger = seconds(10);
constexpr Duration kLingerMax = seconds(600);
constexpr Duration kLingerStep = milliseconds(20);

/// Makes step records from the updates of the first shard. The leader sends them. Leader and
/// follower keep the last ones to send them again, because the leader may be lost before it has
/// sent a record, or the coordinator after it has received one. The receiver drops duplicates.
class StepRecorder {
 public:
  StepRecorder(const Job& job, const PsJob& ps) : job_(job), ps_(ps) {}

  /// Training has fallen back: the steps after record.step will be trained again.
  void fall_back(const FallBackRecord& record) {
    clear();
    // If they were sent again after this record, they would count as committed.
    std::erase_if(recent_, [&](const Record& recent) {
      const auto* step = std::get_if<StepRecord>(&recent);
      return step != nullptr && step->step > record.step;
    });
    send(record);
  }

  /// The client outlives the threads of the shards.
  void begin(elastic::MemberClient& client, const PsLink& link) {
    link_ = &link;
    client_ = &client;
  }

  void lead() {
    leads_ = true;
    repeat();
  }

  void add(const parameter_server::UpdateFacts& facts) {
    record_.samples += facts.samples;
    correct_ += facts.correct;
    microbatches_ += facts.microbatches;
    loss_ += facts.loss;
    for (std::size_t lane = 0; lane < hash_.size(); ++lane) {
      hash_[lane] += facts.sample_hash[lane];
    }
    if (facts.update.steps_after >= facts.update.step) {
      finish(facts);
    }
  }

 private:
  static constexpr std::size_t kRecentRecords = 64;

  void clear() {
    record_ = {};
    hash_ = {};
    correct_ = 0;
    microbatches_ = 0;
    loss_ = 0;
  }

  void finish(const parameter_server::UpdateFacts& facts) {
    record_.step = facts.update.steps_after;
    const auto samples = static_cast<double>(record_.samples);
    record_.epoch = job_.epochs_at(record_.step);
    record_.loss = loss_ / microbatches_;
    record_.accuracy = static_cast<double>(correct_) / samples;
    record_.learning_rate = ps_.rate_of(job_, facts.update, facts.microbatches);
    record_.sample_hash =
        fmt::format("{:08x}{:08x}{:08x}{:08x}", hash_[3], hash_[2], hash_[1], hash_[0]);
    if (const std::optional<elastic::View> view = link_->view()) {
      record_.view = value(view->id);
      record_.members = static_cast<std::uint32_t>(
          std::count_if(view->members.begin(), view->members.end(),
                        [](const auto& m) { return is_worker(m.address); }));
    }
    const Instant now = monotonic_now();
    record_.images_per_second = last_.ns == 0 ? 0 : samples / to_seconds(now - last_);
    last_ = now;
    record_.committed_at = now;
    send(record_);
    clear();
  }

  void repeat() {
    if (client_ == nullptr) {
      return;  // begin() was not called yet, so there are no records
    }
    repeated_on_connection_ = client_->connections();
    for (const Record& record : recent_) {
      report(record);
    }
  }

  void report(const Record& record) {
    const auto* step = std::get_if<StepRecord>(&record);
    client_->send_report(encode_record(record),
                         step != nullptr ? step->committed_at : monotonic_now());
  }

  void send(const Record& record) {
    if (leads_ && client_->connections() != repeated_on_connection_) {
      repeat();
    }
    if (leads_) {
      report(record);
    }
    recent_.push_back(record);
    if (recent_.size() > kRecentRecords) {
      recent_.pop_front();
    }
  }

  const Job& job_;
  const PsJob& ps_;
  const PsLink* link_ = nullptr;
  elastic::MemberClient* client_ = nullptr;
  bool leads_ = false;
  std::deque<Record> recent_;
  // MemberClient::connections() when the records were last repeated:
  std::uint64_t repeated_on_connection_ = 0;
  StepRecord record_;
  std::array<std::uint32_t, 4> hash_{};
  std::uint64_t correct_ = 0;
  std::uint32_t microbatches_ = 0;
  double loss_ = 0;
  Instant last_;
};

class ServerListener final : public parameter_server::ShardListener {
 public:
  ServerListener(const Job& job, const PsJob& ps, std::uint32_t server, std::uint32_t shard,
                 bool leads)
      : server_(server), shard_(shard), recorder_(job, ps) {
    if (leads) {
      recorder_.lead();
    }
  }

  /// To be called before a shard accepts any worker.
  void begin(elastic::MemberClient& client, PsLink& link) {
    recorder_.begin(client, link);
    client_ = &client;
    link_ = &link;
  }

  void on_update(const parameter_server::UpdateFacts& facts) override {
    if (shard_ == 0) {
      recorder_.add(facts);
    }
  }
  void on_followed(const parameter_server::UpdateFacts& facts) override { on_update(facts); }
  void on_rewound(const parameter_server::RewindFacts& facts) override {
    if (shard_ == 0) {
      recorder_.fall_back({facts.rewind.at, facts.step, facts.reason});
    }
  }
  void on_lead(std::uint64_t version) override {
    if (shard_ == 0) {
      recorder_.lead();
    }
    note("shard_taken_over", fmt::format("shard {}: its leader is lost; server {} leads it after "
                                         "update {}, no acknowledged update is missing",
                                         shard_, server_, version));
  }
  void on_unreachable(MemberId follower) override {
    const std::string why = fmt::format("shard {}: its follower, member {}, cannot be reached",
                                        shard_, value(follower));
    note("follower_unreachable", why);
    link_->broke(follower, why);
  }
  void on_alone(std::uint64_t version) override {
    note("shard_alone",
         fmt::format("shard {}: its follower is lost; server {} continues alone after update {}",
                     shard_, server_, version));
  }
  void on_diverged(const std::string& why) override {
    client_->send_report(encode_record(FatalRecord{
        fmt::format("shard {} and its follower on server {} differ: {}", shard_, server_, why)}));
  }
  void on_quiet(ViewId view) override { link_->quiet(view); }
  void on_over() override { link_->finished(); }
  void on_straggler(const parameter_server::StragglerChange& change) override {
    client_->send_report(encode_record(NoteRecord{
        "straggler",
        fmt::format("worker {} takes {:.2f} times as long as the others: {}", value(change.worker),
                    change.ratio, change.is_slow ? "a straggler" : "none any more")}));
  }

 private:
  void note(const char* kind, const std::string& text) {
    log::info(text);
    client_->send_report(encode_record(NoteRecord{kind, text}));
  }

  const std::uint32_t server_;
  const std::uint32_t shard_;
  StepRecorder recorder_;
  elastic::MemberClient* client_ = nullptr;
  PsLink* link_ = nullptr;
};

/// One shard in this process. The thread of `shard` uses the other members.
struct Hosted {
  std::uint32_t number = 0;
  std::unique_ptr<SgdShard> state;
  std::unique_ptr<ServerListener> listener;
  std::unique_ptr<parameter_server::Shard> shard;
};

std::set<MemberId> workers_of(const elastic::View& view) {
  std::set<MemberId> workers;
  for (const elastic::ViewMember& member : view.members) {
    if (is_worker(member.address)) {
      workers.insert(member.id);
    }
  }
  return workers;
}

}  // namespace

struct PsServer::Parts {
  Parts(const Job& j, PsJob p, ServerPlace at)
      : job(j), ps(std::move(p)), layout(layout_of(j.model)), place(at), servers(j.config) {}

  Result<void> host(parameter_server::ShardOptions options, const nn::ModelState& initial);
  void follow(const elastic::View& view);
  void set_shard_views(const elastic::View& view);
  void wait_for_workers() const;
  void stop() const;

  const Job& job;
  const PsJob ps;
  const ReductionLayout layout;
  const ServerPlace place;
  Step committed{};
  PsServers servers;                        // used by the control thread
  bool has_view = false;                    // used by the control thread
  std::atomic<bool> is_late = false;        // set by the control thread
  elastic::MemberClient* client = nullptr;  // set by join()
  PsLink* link = nullptr;
  /// The shards that this server leads at first, then those that it follows. All threads read it,
  /// including those of the shards, so it does not change between start() and their end.
  std::vector<Hosted> hosted;
};

PsServer::PsServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
PsServer::~PsServer() {
  parts_->stop();
}

Result<void> PsServer::Parts::host(parameter_server::ShardOptions options,
                                   const nn::ModelState& initial) {
  const bool leads = options.role == parameter_server::ShardRole::kLeads;
  options.shards = ps.shards;
  options.divergence = ps.divergence;
  options.payload_hashes = job.config.ps_hashes;
  options.has_follower = leads && job.config.ps_replicas > 0;
  options.stragglers = parameter_server::parse_straggler_policy(job.config.straggler).value();
  options.straggling.slow = job.config.straggler_factor;
  options.straggling.clear = 1 + (job.config.straggler_factor - 1) / 2;
  options.straggling.windows = job.config.straggler_windows;
  Hosted fresh;
  fresh.number = options.number;
  fresh.state = std::make_unique<SgdShard>(job, ps, layout, ps.ranges[options.number], initial);
  fresh.listener = std::make_unique<ServerListener>(job, ps, place.index, options.number, leads);
  TRY_ASSIGN(fresh.shard,
             parameter_server::Shard::start(options, ps.plan, *fresh.state, *fresh.listener));
  hosted.push_back(std::move(fresh));
  return {};
}

Result<std::unique_ptr<PsServer>> PsServer::start(const Job& job, const ReductionLayout& layout,
                                                  const nn::ModelState& initial,
                                                  ServerPlace place) {
  TRY_ASSIGN(PsJob ps, make_ps_job(job, layout, value(initial.committed)));
  const JobConfig& config = job.config;
  TRY_ASSIGN(const std::string host, listening_host(config.bind_host));
  auto parts = std::make_unique<Parts>(job, std::move(ps), place);
  parts->committed = initial.committed;
  const std::uint32_t count = server_count(config);
  const std::uint32_t before = (place.index + count - 1) % count;
  for (const bool leads : {true, false}) {
    for (std::uint32_t i = 0; i < (leads || config.ps_replicas > 0 ? config.shards : 0); ++i) {
      parameter_server::ShardOptions options;
      options.number = (leads ? place.index : before) * config.shards + i;
      options.host = host;
      options.role =
          leads ? parameter_server::ShardRole::kLeads : parameter_server::ShardRole::kFollows;
      TRY(parts->host(options, initial));
    }
  }
  return std::unique_ptr<PsServer>(new PsServer(std::move(parts)));
}

std::string PsServer::address() const {
  ServerAddress address;
  address.index = parts_->place.index;
  address.computes = parts_->place.computes;
  for (std::size_t i = 0; i < parts_->hosted.size(); ++i) {
    const bool leads = i < parts_->job.config.shards;
    (leads ? address.shards : address.followers).push_back(parts_->hosted[i].shard->address());
  }
  return to_text(address);
}

void PsServer::Parts::follow(const elastic::View& view) {
  if (is_late) {
    return;
  }
  const bool is_first = !std::exchange(has_view, true);
  is_late = is_first && (client->joins_late() || is_late_server(view, committed));
  if (const Result<void> known = servers.follow(view); !known.ok() && !is_late) {
    log::warning(known.error().detail);  // the workers end the job
    return;
  }
  is_late = is_late || (is_first && !servers.is_server(place.index, client->id()));
  if (!is_late) {
    set_shard_views(view);
    return;
  }
  const std::string why = fmt::format(
      "server {} has joined a running job, which has its servers; the parameters that it lost "
      "cannot be restored",
      place.index);
  place.computes ? log::info(why) : log::error(why);
  client->post(elastic::member_event::LeaveAsked{why});
}

void PsServer::Parts::set_shard_views(const elastic::View& view) {
  for (const Hosted& own : hosted) {
    const bool leads = servers.placement().leader_of(own.number) == place.index;
    parameter_server::ShardView shard_view;
    shard_view.view = view.id;
    shard_view.key = view.key;
    shard_view.workers = workers_of(view);
    shard_view.role =
        leads ? parameter_server::ShardRole::kLeads : parameter_server::ShardRole::kFollows;
    shard_view.follower = leads ? servers.follower_address(own.number) : std::string();
    shard_view.follower_id = leads ? servers.follower_member(own.number) : MemberId{};
    if (leads && own.number == 0) {
      link->wait_for_quiet();
    }
    own.shard->set_view(std::move(shard_view));
  }
}

void PsServer::join(elastic::MemberClient& client, PsLink& link) {
  parts_->client = &client;
  parts_->link = &link;
  for (const Hosted& own : parts_->hosted) {
    own.listener->begin(client, link);
  }
}

void PsServer::meet(const elastic::View& view) {
  parts_->follow(view);
}

void PsServer::hold() {
  for (const Hosted& own : parts_->hosted) {
    if (own.number == 0) {
      own.shard->hold();
    }
  }
}

bool PsServer::is_late() const {
  return parts_->is_late;
}

elastic::member_effect::Leave PsServer::run(elastic::MemberClient& client) {
  std::mutex mutex;
  std::condition_variable leave_ordered;
  PsLink::Hooks hooks;
  hooks.on_view = [this](const elastic::View& view) { meet(view); };
  hooks.on_hold = [this] { hold(); };
  hooks.on_leave = [&] {
    const std::lock_guard lock(mutex);
    leave_ordered.notify_all();
  };
  PsLink link(client, parts_->committed, Step{parts_->job.total_steps}, hooks);
  join(client, link);
  client.start(link);
  client.post(elastic::member_event::Loaded{parts_->committed, 0});
  {
    std::unique_lock lock(mutex);
    while (!link.leave_order().has_value()) {
      leave_ordered.wait_for(lock, milliseconds(200));
    }
  }
  elastic::member_effect::Leave leave = *link.leave_order();
  finish(leave);
  return leave;
}

void PsServer::finish(const elastic::member_effect::Leave& leave) {
  if (!elastic::is_eviction(leave.reason) && !parts_->is_late) {
    parts_->wait_for_workers();
  }
  if (!parts_->is_late) {  // the shards of a late server are not part of the job
    report();
  }
  parts_->stop();  // afterwards no thread of a shard uses the link
}

/// Ends the threads of all shards. No shard is destroyed before that, because the thread of one
/// shard may hold another one.
void PsServer::Parts::stop() const {
  for (const Hosted& own : hosted) {
    own.shard->stop();
  }
}

/// Waits until no worker is connected, because workers may still fetch the state.
void PsServer::Parts::wait_for_workers() const {
  const Instant begun = monotonic_now();
  Instant sent_at = begun;
  std::uint64_t sent_before = 0;
  const auto is_used = [](const Hosted& own) { return own.shard->has_connections(); };
  while (std::any_of(hosted.begin(), hosted.end(), is_used)) {
    std::uint64_t sent = 0;
    for (const Hosted& own : hosted) {
      sent += own.shard->facts().bytes_sent;
    }
    const Instant now = monotonic_now();
    sent_at = sent != std::exchange(sent_before, sent) ? now : sent_at;
    if (now - sent_at > kLinger || now - begun > kLingerMax) {
      return;
    }
    std::this_thread::sleep_for(kLingerStep);
  }
}

/// Sends the record of each shard that this server leads, for events.jsonl.
void PsServer::report() const {
  for (const Hosted& own : parts_->hosted) {
    const parameter_server::ShardFacts facts = own.shard->facts();
    if (!facts.leads) {
      continue;
    }
    ShardRecord record;
    record.shard = own.number;
    record.updates = facts.version;
    record.committed = facts.committed;
    record.repeats = facts.repeats;
    record.late = facts.late;
    record.leased_again = facts.reissued;
    record.mixed = facts.mixed;
    record.at_once = facts.at_once;
    record.undone = facts.undone;
    record.probes = facts.probes;
    record.bytes_in = facts.bytes_in;
    record.bytes_out = facts.bytes_out;
    record.bytes_shared = facts.bytes_shared;
    record.bytes_followed = facts.bytes_followed;
    record.staleness = {facts.staleness.begin(), facts.staleness.end()};
    parts_->client->send_report(encode_record(record));
  }
}

}  // namespace mayfly::engine
