#include "elastic/net/coordinator_server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/descriptor_limit.hpp"
#include "base/log.hpp"
#include "base/net/sockets.hpp"
#include "base/parse.hpp"
#include "base/thread_priority.hpp"
#include "base/try_assign.hpp"
#include "elastic/core/messages.hpp"
#include "elastic/net/control_sessions.hpp"
#include "elastic/net/flight_recorder.hpp"
#include "elastic/net/job_token.hpp"

namespace mayfly::elastic {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// While steps are made, the only event that a tick must detect is the end of a silence, and each
// tick wakes a core that computes. So ticks come less often then.
constexpr auto kTickInterval = std::chrono::milliseconds(5);
constexpr auto kQuietTickInterval = std::chrono::milliseconds(25);
// The most that the numbers in a status may lag behind (steps, speeds, silences); facts are never
// late.
constexpr Duration kStatusInterval = milliseconds(100);
// For members that can change to another coordinator (MemberClient's kCoordinatorSilenceMax).
constexpr Duration kBeatInterval = milliseconds(250);

class Server final : public CoordinatorServer, private SessionOwner {
 public:
  Server(CoordinatorServerOptions options, UniqueFd listener, CoordinatorObserver& observer);
  ~Server() override;

  [[nodiscard]] std::string endpoint() const override { return endpoint_; }
  void begin(std::function<CoordinatorOptions()> core) override;
  void drain(MemberId member, std::string reason) override {
    post_event(coordinator_event::DrainAsked{member, std::move(reason)});
  }
  void pause(bool paused) override { post_event(coordinator_event::PauseAsked{paused}); }
  void stop(std::string reason) override {
    post_event(coordinator_event::StopAsked{std::move(reason)});
  }
  void fail(std::string reason) override {
    post_event(coordinator_event::FailAsked{std::move(reason)});
  }
  [[nodiscard]] JobStatus status() const override {
    const std::lock_guard lock(status_mutex_);
    return status_;
  }

 private:
  void on_hello(const Session& session, Hello hello) override;
  void on_session_message(const Session& session, Message message) override;
  void on_session_lost(const Session& session, const std::string& detail) override;

  void handle_worker(const Session& session, Message message);
  void handle_sentinel(const Session& session, const Message& message);
  void handle_operator(const Session& session, const Message& message);
  [[nodiscard]] CommandReply run_command(const Command& command);
  [[nodiscard]] CommandReply drain_command(const std::string& argument);

  void schedule_tick();
  void post_event(CoordinatorEvent each);
  void handle(const CoordinatorEvent& each);
  void handle_before_it_begins(const CoordinatorEvent& each);
  void apply(Instant, coordinator_effect::Accept& a) {
    sessions_.admit(a.connection, SessionStage::kWorker, a.member);  // Welcome is the next effect
  }
  void apply(Instant, coordinator_effect::Refuse& r) {
    sessions_.refuse(r.connection, Refused{r.reason, r.refusal});
  }
  void apply(Instant, coordinator_effect::Append& a) {
    const bool is_written = view_log_ == nullptr || view_log_->append(a.record, a.durable);
    const bool is_end = std::holds_alternative<log_record::JobEnded>(a.record);
    must_not_lead_ = must_not_lead_ || (!is_written && a.durable && !is_end);
  }
  void apply(Instant, coordinator_effect::Send& s);
  void apply(Instant, coordinator_effect::SendToAll& s) {
    sessions_.send_to_workers(s.members, s.message);
  }
  void apply(Instant, coordinator_effect::Probe& p) { sessions_.probe(p.member); }
  void apply(Instant, coordinator_effect::Disconnect& d) { sessions_.disconnect(d.member); }
  void apply(Instant now, coordinator_effect::Note& note) { observer_.on_note(now, note); }
  void apply(Instant now, coordinator_effect::ViewPublished& v) { observer_.on_view(now, v.view); }
  void apply(Instant now, coordinator_effect::ViewTakenOver& v) { observer_.on_view(now, v.view); }
  void apply(Instant, coordinator_effect::RecoveryDone& r) { observer_.on_recovery(r.recovery); }
  void apply(Instant, coordinator_effect::JoinDone& j) { observer_.on_join(j.join); }
  void apply(Instant, coordinator_effect::ReportReceived& r) {
    observer_.on_report(r.member, r.payload, r.happened);
  }
  void apply(Instant, coordinator_effect::JobEnded& e) { observer_.on_ended(e.outcome, e.detail); }
  void refresh_status(Instant now);
  /// Whether messages of this member's sentinel are accepted. If the member is not connected, its
  /// sentinel may connect before it, or report its death.
  [[nodiscard]] bool accepts_sentinel_of(MemberId member) const {
    return sessions_.has_worker(member) || (core_ && core_->awaits_members());
  }
  /// For the sentinel of a worker of an earlier job, whose id may be that of a member of this one.
  [[nodiscard]] bool is_another_job(std::uint64_t job) const {
    return core_ && core_->job() != 0 && job != core_->job();
  }
  void count_report(std::uint64_t session);
  void confirm_reports();
  void beat(Instant now);

  asio::io_context io_{1};
  asio::steady_timer tick_timer_{io_};
  bool is_quiet_ = false;       // the next tick is scheduled for kQuietTickInterval
  bool must_not_lead_ = false;  // a decision was not recorded, and might be made differently
  std::string endpoint_;
  const std::unique_ptr<DurableViewLog> view_log_;
  bool has_standbys_;                // with begins_later: known from begin() on
  std::optional<Coordinator> core_;  // the same
  bool is_over_ = false;             // the job was stopped before it began
  FlightRecorder flight_;
  CoordinatorObserver& observer_;
  ControlSessions sessions_;
  struct Taken {
    std::uint64_t reports = 0;
    bool is_news = false;
  };
  std::map<std::uint64_t, Taken> taken_;  // by the worker's session
  Instant last_beat_;

  mutable std::mutex status_mutex_;
  JobStatus status_;  // guarded by status_mutex_
  Instant status_since_;
  Instant news_;

  std::thread thread_;
};

bool is_report(const CoordinatorEffect& effect) {
  return std::holds_alternative<coordinator_effect::ReportReceived>(effect);
}

/// Messages do not change what status() shows, except which member is to leave.
bool is_message(const CoordinatorEffect& effect) {
  return std::holds_alternative<coordinator_effect::Send>(effect) ||
         std::holds_alternative<coordinator_effect::SendToAll>(effect);
}

/// Changes which members are to leave or what the job does, even if only messages follow.
bool is_order(const CoordinatorEvent& event) {
  if (const auto* received = std::get_if<coordinator_event::Received>(&event)) {
    return std::holds_alternative<LeaveRequest>(received->message);
  }
  return std::holds_alternative<coordinator_event::DrainAsked>(event) ||
         std::holds_alternative<coordinator_event::PauseAsked>(event) ||
         std::holds_alternative<coordinator_event::StopAsked>(event);
}

/// Where to connect to: a wildcard address can be listened on but not connected to.
std::string reachable_endpoint(const std::string& host, std::uint16_t port) {
  const bool wildcard = host.empty() || host == "0.0.0.0" || host == "::" || host == "*";
  return to_string(Endpoint{wildcard ? "127.0.0.1" : host, port});
}

bool wants_to_take_part(const Hello& hello) {
  return hello.role == Role::kWorker || hello.role == Role::kSentinel;
}

Coordinator make_core(CoordinatorOptions options, const DurableViewLog* log) {
  return log == nullptr ? Coordinator(std::move(options))
                        : Coordinator(std::move(options), log->contents());
}

Server::Server(CoordinatorServerOptions options, UniqueFd listener, CoordinatorObserver& observer)
    : endpoint_(reachable_endpoint(options.advertise.empty() ? options.host : options.advertise,
                                   bound_endpoint(listener.get()).port)),
      view_log_(std::move(options.view_log)),
      has_standbys_(options.core.quorum),
      flight_(options.flight_path),
      observer_(observer),
      sessions_(io_, std::move(listener), std::move(options.token), *this) {
  if (!options.begins_later) {
    core_.emplace(make_core(std::move(options.core), view_log_.get()));
  }
  refresh_status(monotonic_now());
  sessions_.start();
  schedule_tick();
  thread_ = std::thread([this] {
    become_low_latency_thread("coordinator");
    observer_.on_started(*this);
    io_.run();
  });
}

Server::~Server() {
  asio::post(io_, [this] {
    tick_timer_.cancel();
    sessions_.shut_down([this] { io_.stop(); });
  });
  thread_.join();
}

void Server::schedule_tick() {
  is_quiet_ = !core_ || core_->is_undisturbed();
  tick_timer_.expires_after(is_quiet_ ? kQuietTickInterval : kTickInterval);
  tick_timer_.async_wait([this](const error_code& error) {
    if (error || sessions_.shutting_down()) {
      return;
    }
    handle(coordinator_event::Tick{});
    for (const MemberId member : sessions_.answered_probes()) {
      handle(coordinator_event::HostAnswers{member});
    }
    const Instant now = monotonic_now();
    sessions_.tick(now);
    confirm_reports();
    beat(now);
    schedule_tick();
  });
}

// --- sessions

void Server::on_hello(const Session& session, Hello hello) {
  const std::uint64_t id = session.id;
  if (!core_ && wants_to_take_part(hello)) {
    return sessions_.refuse(id, Refused{"the job has not begun", Refusal::kElsewhere});
  }
  switch (hello.role) {
    case Role::kWorker: handle(coordinator_event::WorkerConnected{id, std::move(hello)}); return;
    case Role::kSentinel:
      if (is_another_job(hello.job)) {
        return sessions_.refuse(id, {"this coordinator leads another job", Refusal::kElsewhere});
      }
      if (!accepts_sentinel_of(hello.member)) {
        return sessions_.refuse(id, Refused{fmt::format("no member {}", value(hello.member))});
      }
      sessions_.admit(id, SessionStage::kSentinel, hello.member);
      return sessions_.send(id, Welcome{hello.member});
    case Role::kOperator:
      sessions_.admit(id, SessionStage::kOperator, MemberId{});
      return sessions_.send(id, Welcome{});
    case Role::kTransfer:
      if (hello.job != 0 && core_ && core_->has_led() && is_another_job(hello.job)) {
        return sessions_.refuse(id, {"it leads another job", Refusal::kElsewhere});
      }
      return observer_.on_transfer(sessions_.release(id), hello.host);
  }
}

void Server::on_session_message(const Session& session, Message message) {
  switch (session.stage) {
    case SessionStage::kWorker: return handle_worker(session, std::move(message));
    case SessionStage::kSentinel: return handle_sentinel(session, message);
    case SessionStage::kOperator: return handle_operator(session, message);
    case SessionStage::kUnauthenticated:
    case SessionStage::kLeaving: return;
  }
}

void Server::on_session_lost(const Session& session, const std::string& detail) {
  taken_.erase(session.id);
  if (session.stage == SessionStage::kWorker) {
    handle(coordinator_event::ConnectionLost{session.member, detail});
  } else if (session.stage == SessionStage::kSentinel) {
    // This is no sign that the worker failed; if its host died, the worker's silence will show it.
    log::debug(
        fmt::format("sentinel of member {} disconnected: {}", value(session.member), detail));
  }
}

void Server::handle_worker(const Session& session, Message message) {
  if (!is_from_worker(message)) {
    return sessions_.close(session.id, std::string("unexpected ") + name_of(message));
  }
  const bool reports = std::holds_alternative<Report>(message);
  handle(coordinator_event::Received{session.member, std::move(message)});
  if (reports && !must_not_lead_) {
    count_report(session.id);  // it is on record now
  }
}

/// A dismissed member keeps its unconfirmed reports and sends them again when it joins anew, so its
/// reports are confirmed before Dismiss is sent.
void Server::apply(Instant /*now*/, coordinator_effect::Send& s) {
  if (std::holds_alternative<Dismiss>(s.message)) {
    confirm_reports();
  }
  sessions_.send_to_worker(s.member, s.message);
}

void Server::count_report(std::uint64_t session) {
  Taken& taken = taken_[session];
  ++taken.reports;
  taken.is_news = true;
}

void Server::confirm_reports() {
  if (taken_.size() > sessions_.size()) {  // sessions that this side ended
    std::erase_if(taken_, [this](const auto& one) { return !sessions_.has(one.first); });
  }
  for (auto& [session, taken] : taken_) {
    if (std::exchange(taken.is_news, false)) {
      sessions_.send(session, ReportsTaken{taken.reports});
    }
  }
}

void Server::beat(Instant now) {
  if (has_standbys_ && now - last_beat_ >= kBeatInterval) {
    last_beat_ = now;
    sessions_.send_to_all_workers(Heartbeat{});
  }
}

void Server::handle_sentinel(const Session& session, const Message& message) {
  if (is_another_job(session.job)) {  // a standby did not know its job when the sentinel connected
    return sessions_.close(session.id, "it is of another job");
  }
  if (const auto* beat = std::get_if<Heartbeat>(&message)) {
    if (!accepts_sentinel_of(session.member)) {  // it is refused if it connects again
      return sessions_.close(session.id, "no such member");
    }
    handle(coordinator_event::SentinelBeat{session.member, beat->position, beat->worker_stopped});
  } else if (const auto* died = std::get_if<WorkerDied>(&message)) {
    handle(coordinator_event::SentinelReport{session.member, died->detail, died->is_dead,
                                             died->incarnation, died->author});
  } else {
    sessions_.close(session.id, std::string("unexpected ") + name_of(message));
  }
}

void Server::handle_operator(const Session& session, const Message& message) {
  if (const auto* command = std::get_if<Command>(&message)) {
    sessions_.send(session.id, run_command(*command));
  } else {
    sessions_.close(session.id, std::string("unexpected ") + name_of(message));
  }
}

CommandReply Server::run_command(const Command& command) {
  if (!core_ && (command.verb == "drain" || command.verb == "pause" || command.verb == "resume")) {
    return {false, "the job has not begun"};
  }
  if (command.verb == "drain") {
    return drain_command(command.argument);
  }
  if (command.verb == "pause" || command.verb == "resume") {
    if (!core_->is_in_charge()) {
      return {false, "this coordinator is not in charge of the job; ask the one that is"};
    }
    handle(coordinator_event::PauseAsked{command.verb == "pause"});
    return {true, command.verb == "pause" ? "pausing at the next step boundary" : "resuming"};
  }
  if (command.verb == "stop") {
    handle(coordinator_event::StopAsked{command.argument.empty() ? "operator" : command.argument});
    return {true, "stopping at the next step boundary"};
  }
  refresh_status(monotonic_now());
  return observer_.on_command(command);
}

CommandReply Server::drain_command(const std::string& argument) {
  const std::optional<std::uint64_t> number = number_in<std::uint64_t>(argument);
  if (!number) {
    return {false, "'" + argument + "' is not a member's number"};
  }
  if (!sessions_.has_worker(MemberId{*number})) {
    return {false, fmt::format("no member {}", *number)};
  }
  handle(coordinator_event::DrainAsked{MemberId{*number}, "operator"});
  return {true, fmt::format("draining member {} at the next step boundary", *number)};
}

// --- the machine

void Server::post_event(CoordinatorEvent each) {
  asio::post(io_, [this, each = std::move(each)] {
    if (!sessions_.shutting_down()) {
      handle(each);
    }
  });
}

void Server::handle(const CoordinatorEvent& each) {
  if (!core_) {
    return handle_before_it_begins(each);
  }
  if (must_not_lead_) {
    return;
  }
  const Instant now = monotonic_now();
  flight_.received(now, each);
  std::vector<CoordinatorEffect> effects = core_->handle(now, each);
  flight_.decided(now, effects);
  const auto is_fact = [](const auto& one) { return !is_message(one) && !is_report(one); };
  const bool is_news = is_order(each) || std::any_of(effects.begin(), effects.end(), is_fact);
  const bool has_report = std::any_of(effects.begin(), effects.end(), is_report);
  // Before the observer is called, so that status() is never older than its news.
  if (is_news || has_report || now - status_since_ >= kStatusInterval) {
    news_ = is_news ? now : news_;
    refresh_status(now);
  }
  if (is_news) {
    observer_.on_news();
  }
  for (CoordinatorEffect& one : effects) {
    std::visit([&](auto& which) { apply(now, which); }, one);
    if (must_not_lead_) {  // as if killed here: members wait, or find another coordinator
      {
        const std::lock_guard lock(status_mutex_);
        status_.members.clear();  // so that the end of this process does not wait for any member
      }
      observer_.on_ended(Outcome::kFailed, "the view log cannot be written");
      break;
    }
  }
  flight_.write_if_requested();
  if (is_quiet_ && !core_->is_undisturbed() && !sessions_.shutting_down()) {
    schedule_tick();  // at the shorter interval
  }
}

void Server::begin(std::function<CoordinatorOptions()> core) {
  asio::post(io_, [this, core = std::move(core)] {
    if (!core_ && !is_over_ && !sessions_.shutting_down()) {
      CoordinatorOptions options = core();
      has_standbys_ = options.quorum;
      core_.emplace(make_core(std::move(options), view_log_.get()));
      handle(coordinator_event::Tick{});
    }
  });
}

void Server::handle_before_it_begins(const CoordinatorEvent& each) {
  const auto* stop = std::get_if<coordinator_event::StopAsked>(&each);
  const auto* fail = std::get_if<coordinator_event::FailAsked>(&each);
  if (is_over_ || (stop == nullptr && fail == nullptr)) {
    return;
  }
  is_over_ = true;
  observer_.on_ended(fail != nullptr ? Outcome::kFailed : Outcome::kStopped,
                     fail != nullptr ? fail->reason : stop->reason);
}

void Server::refresh_status(Instant now) {
  status_since_ = now;
  JobStatus fresh{JobPhase::kWaiting, Step{}, ViewId{}, {}, true, news_};
  if (core_) {
    fresh = {core_->phase(),   core_->committed(),    ViewId{},
             core_->members(), core_->is_in_charge(), news_};
    fresh.view = core_->view() ? core_->view()->id : ViewId{};
  }
  const std::lock_guard lock(status_mutex_);
  status_ = std::move(fresh);
}

}  // namespace

std::uint64_t make_identity() {
  const Bytes random = make_nonce();
  std::uint64_t identity = 0;
  std::memcpy(&identity, random.data(), sizeof identity);
  return identity | 1;
}

Result<std::unique_ptr<CoordinatorServer>> start_coordinator(CoordinatorServerOptions options,
                                                             CoordinatorObserver& observer) {
  raise_descriptor_limit();  // a member has two connections, with TLS of three descriptors each
  TRY_ASSIGN(UniqueFd listener, listen_tcp(Endpoint{options.host, options.port}));
  return std::unique_ptr<CoordinatorServer>(
      std::make_unique<Server>(std::move(options), std::move(listener), observer));
}

}  // namespace mayfly::elastic
