#include "elastic/net/member_client.hpp"

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/log.hpp"
#include "base/thread_priority.hpp"
#include "base/try_assign.hpp"
#include "base/usable_cores.hpp"
#include "elastic/net/connection.hpp"
#include "elastic/net/coordinator_search.hpp"
#include "elastic/net/flight_recorder.hpp"
#include "elastic/net/handshake.hpp"
#include "elastic/net/pending_gets.hpp"
#include "elastic/net/reconnect.hpp"
#include "elastic/net/sentinel.hpp"

namespace mayfly::elastic {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// The sentinel also sends heartbeats, with the same interval.
constexpr Duration kHeartbeatInterval = milliseconds(100);
// Only if the list has another coordinator. A coordinator sends heartbeats every 250 ms.
constexpr Duration kCoordinatorSilenceMax = seconds(2);
// A coordinator that is not in charge sends its members to another one long before this time.
constexpr Duration kInChargeAfter = seconds(30);

/// A report contains its age, because the clocks of two hosts cannot be compared.
Report report_of(const Bytes& payload, Instant happened) {
  return {payload, static_cast<float>(std::max(0.0, to_ms(monotonic_now() - happened)))};
}

/// The fields of Hello that are the same on every connection of this worker.
Hello worker_hello(const MemberClientOptions& options) {
  Hello hello;
  hello.address = options.address;
  hello.server = options.server;
  hello.cores = usable_cores();
  hello.fingerprint = options.fingerprint;
  return hello;
}

/// The Hello of the first connection; a worker that was evicted comes with its former id.
Hello first_hello(const MemberClientOptions& options) {
  Hello hello = worker_hello(options);
  if (options.former) {
    Member(*options.former).introduce(hello);
  }
  return hello;
}

/// True if a member that has not started yet has nothing to start for after this event.
bool ends_its_part(const MemberEvent& event) {
  const auto* received = std::get_if<member_event::Received>(&event);
  const auto* refused = received != nullptr ? std::get_if<Refused>(&received->message) : nullptr;
  return received != nullptr && (std::holds_alternative<Dismiss>(received->message) ||
                                 (refused != nullptr && refused->refusal != Refusal::kElsewhere));
}

/// The recorder's file: one per member, so that members with the same run directory use different
/// files.
std::string flight_path(const std::string& folder, MemberId self) {
  return folder.empty() ? "" : folder + "/flight-member-" + std::to_string(value(self)) + ".log";
}

class Client final : public MemberClient, public ConnectionOwner {
 public:
  Client(MemberClientOptions options, std::size_t endpoint, OpenSession session);
  ~Client() override;

  [[nodiscard]] MemberId id() const override { return welcome_.member; }
  [[nodiscard]] std::uint64_t job() const override { return welcome_.job; }
  [[nodiscard]] bool joins_late() const override { return welcome_.underway; }
  void start(MemberHandler& handler) override;

  [[nodiscard]] bool is_dismissed() const override { return is_dismissed_; }
  void post(MemberEvent each) override {
    asio::post(io_, [this, each = std::move(each)] { handle(each); });
  }
  void send_progress(const Progress& p) override { post(member_event::Progressed{p}); }
  using MemberClient::send_report;
  void send_report(Bytes payload, Instant happened) override;
  [[nodiscard]] std::uint64_t connections() const override { return connections_; }
  [[nodiscard]] ViewId view() const override { return ViewId{view_.load()}; }
  Result<void> store_set(ViewId view, const std::string& key, ByteSpan value) override;
  Result<Bytes> store_get(ViewId view, const std::string& key, Instant deadline) override;

 private:
  void on_message(Connection& connection, Message message) override;
  void on_closed(Connection& connection, const std::string& detail) override;

  void connect(std::size_t endpoint, UniqueFd fd);
  void on_answer(std::size_t endpoint, Answer answer);
  void repeat_unheard();
  void send_reports();
  void lose_coordinator();
  void leave_coordinator(std::uint32_t skip);
  void check_patience(Instant now);
  void send(const Message& message) {
    if (connection_ != nullptr) {
      connection_->send(message);
      last_sent_ = monotonic_now();
    }
  }
  void handle(const MemberEvent& each);
  void apply(member_effect::Send& send_out) { send(send_out.message); }
  void apply(member_effect::RunView& run);
  void apply(member_effect::AbortGroup& abort);
  void apply(member_effect::AskForBoundary& ask) { handler_->ask_for_boundary(ask); }
  void apply(member_effect::Leave& leave);
  void apply(member_effect::Adopt& adopt);
  void apply(member_effect::TryElsewhere& elsewhere) { unwelcome_skip_ = elsewhere.skip; }
  void end_views_up_to(ViewId view);
  void schedule_beat();
  void shut_down();

  const Welcome welcome_;
  const MemberClientOptions options_;
  asio::io_context io_{1};
  asio::steady_timer beat_timer_{io_};
  asio::steady_timer flush_timer_{io_};
  // Members for the control thread only, as all below except gets_ and the atomic ones:
  Member machine_;
  FlightRecorder flight_;
  CoordinatorSearch search_;
  std::shared_ptr<Connection> connection_;  // null while there is no coordinator
  std::size_t endpoint_;                    // index of the present or last coordinator
  std::atomic<std::uint64_t> connections_ = 0;
  std::atomic<std::uint64_t> view_ = 0;
  std::atomic<bool> is_dismissed_ = false;
  Instant connected_at_;
  Instant last_received_;
  Instant last_sent_;
  std::optional<std::uint32_t> unwelcome_skip_;  // set if the present coordinator cannot be used
  std::optional<Instant> needy_since_;           // when the machine began to lack a coordinator
  bool is_given_up_ = false;
  MemberHandler* handler_ = nullptr;
  std::vector<MemberEvent> early_events_;  // events that arrived before start()
  ReportQueue own_reports_;
  ReportQueue& reports_;
  std::vector<StoreSet> sets_;  // for views that are not over
  PendingGets gets_;
  bool has_left_ = false;
  bool shutting_down_ = false;
  std::thread thread_;
};

Client::Client(MemberClientOptions options, std::size_t endpoint, OpenSession session)
    : welcome_(session.welcome),
      options_(std::move(options)),
      machine_(options_.former ? Member(*options_.former) : Member(session.welcome)),
      flight_(flight_path(options_.flight_dir, session.welcome.member)),
      search_(
          io_, options_.endpoints, options_.token,
          [this] {
            Hello hello = worker_hello(options_);
            machine_.introduce(hello);
            return hello;
          },
          [this](std::size_t index, Answer answer) { on_answer(index, std::move(answer)); }),
      endpoint_(endpoint),
      reports_(options_.reports != nullptr ? *options_.reports : own_reports_) {
  reports_.begin_job(welcome_.job);
  if (options_.former) {
    early_events_.emplace_back(member_event::Received{session.welcome});
  } else if (options_.sentinel != nullptr) {
    options_.sentinel->adopt(session.welcome.incarnation, session.welcome.author);
  }
  if (options_.sentinel != nullptr) {
    options_.sentinel->arm(options_.endpoints, endpoint, options_.token, welcome_.member,
                           welcome_.job);
  }
  connect(endpoint, std::move(session.fd));
  schedule_beat();
  thread_ = std::thread([this] {
    become_low_latency_thread("control");
    io_.run();
  });
}

void Client::start(MemberHandler& handler) {
  asio::post(io_, [this, &handler] {
    ENSURE(handler_ == nullptr, "a client is started once");
    handler_ = &handler;
    for (const MemberEvent& each : std::exchange(early_events_, {})) {
      handle(each);
    }
    send_reports();
  });
}

Client::~Client() {
  asio::post(io_, [this] { shut_down(); });
  thread_.join();
}

void Client::shut_down() {
  shutting_down_ = true;
  beat_timer_.cancel();
  search_.stop();
  gets_.end();
  if (connection_ == nullptr) {
    io_.stop();
    return;
  }
  connection_->finish();
  flush_timer_.expires_after(kFlushTimeout);
  flush_timer_.async_wait([this](const error_code&) { io_.stop(); });
}

// --- the coordinator, and the search for one

void Client::connect(std::size_t endpoint, UniqueFd fd) {
  endpoint_ = endpoint;
  connected_at_ = last_received_ = monotonic_now();
  connection_ =
      std::make_shared<Connection>(io_, std::move(fd), ++connections_, kMessageBytesMax, *this);
  connection_->start();
  connection_->send(Heartbeat{});
}

void Client::on_answer(std::size_t endpoint, Answer answer) {
  if (const auto* refused = std::get_if<Refused>(&answer.verdict)) {
    log::debug(options_.endpoints[endpoint] + " refuses: " + refused->reason);
    if (handler_ == nullptr && refused->refusal == Refusal::kElsewhere) {
      return search_.try_others(0);  // now, and not at start(), when another one may be connected
    }
    handle(member_event::Received{*refused});
    const auto skip = std::exchange(unwelcome_skip_, std::nullopt);
    if (skip || handler_ == nullptr) {
      search_.try_others(skip.value_or(0));
    }
    return;
  }
  connect(endpoint, std::move(answer.fd));
  // The machine answers with Resume, which must precede all reports and requests of this member.
  handle(member_event::Received{std::get<Welcome>(answer.verdict)});
  if (connection_ != nullptr) {
    repeat_unheard();
  }
}

/// A new coordinator may not know what its predecessor received, so it is sent again. Reports are
/// sent first: a member that gets the value of a key after that knows that its reports have arrived
/// (wait_for_reports()).
void Client::repeat_unheard() {
  log::info("connected to the coordinator at " + options_.endpoints[endpoint_] + " again");
  is_given_up_ = false;
  if (options_.sentinel != nullptr) {
    options_.sentinel->follow(endpoint_);
  }
  if (handler_ != nullptr) {  // otherwise start() sends them
    send_reports();
  }
  for (const StoreSet& each : sets_) {
    send(each);
  }
  for (const StoreGet& each : gets_.unanswered()) {
    send(each);
  }
  if (handler_ != nullptr) {
    handler_->coordinator_returned(reports_.take_dropped());
  }
}

/// Sends all reports that no coordinator has acknowledged, as the first reports of this connection.
void Client::send_reports() {
  reports_.begin_connection();
  for (const ReportQueue::Held& each : reports_.all()) {
    send(report_of(each.payload, each.happened));
  }
}

void Client::on_closed(Connection& connection, const std::string& detail) {
  if (&connection != connection_.get()) {
    return;  // an earlier connection, which this member has left
  }
  connection_.reset();
  if (shutting_down_) {
    io_.stop();
    return;
  }
  if (!has_left_) {
    log::info("lost the coordinator at " + options_.endpoints[endpoint_] + ": " + detail);
    lose_coordinator();
  }
}

void Client::lose_coordinator() {
  needy_since_.reset();  // the lost coordinator may have been in charge
  search_.begin(endpoint_, value(welcome_.member));
  handle(member_event::CoordinatorLost{});
}

/// The coordinator at the other end is not in charge, or must not be obeyed. The time without a
/// coordinator is counted on from the beginning of the search: otherwise a member that is sent from
/// one coordinator to the next would never give up.
void Client::leave_coordinator(std::uint32_t skip) {
  if (connection_ == nullptr) {
    return;  // that coordinator has refused this member; the search continues
  }
  connection_->close("this coordinator is not in charge");
  connection_.reset();
  search_.begin(endpoint_, value(welcome_.member));
  search_.try_others(skip);
  handle(member_event::CoordinatorLost{});
}

/// Every message counts as a heartbeat, so the next heartbeat is due one interval after the last
/// message.
void Client::schedule_beat() {
  const Duration since = monotonic_now() - last_sent_;
  beat_timer_.expires_after(since < kHeartbeatInterval ? kHeartbeatInterval - since
                                                       : kHeartbeatInterval);
  beat_timer_.async_wait([this](const error_code& error) {
    if (error || shutting_down_) {
      return;
    }
    if (monotonic_now() - last_sent_ >= kHeartbeatInterval) {
      send(Heartbeat{});
    }
    check_patience(monotonic_now());
    schedule_beat();
  });
}

void Client::check_patience(Instant now) {
  const bool has_choice = options_.endpoints.size() > 1 && !has_left_;
  if (connection_ != nullptr && has_choice && now - last_received_ > kCoordinatorSilenceMax) {
    connection_->close("it is silent");
  }
  const bool has_one = connection_ != nullptr && now - connected_at_ > kInChargeAfter;
  if (has_one || !machine_.needs_coordinator()) {
    needy_since_.reset();
  } else if (connection_ == nullptr) {
    needy_since_ = needy_since_.value_or(now);
    if (now - *needy_since_ > options_.coordinator_timeout && !std::exchange(is_given_up_, true)) {
      handle(member_event::CoordinatorGivenUp{});
    }
  }
}

// --- messages and effects

void Client::on_message(Connection& connection, Message message) {
  if (&connection != connection_.get()) {
    return;
  }
  last_received_ = monotonic_now();
  if (const auto* value = std::get_if<StoreValue>(&message)) {
    gets_.answer(*value);
  } else if (const auto* taken = std::get_if<ReportsTaken>(&message)) {
    reports_.taken(taken->count);
  } else {
    if (const auto* lack = std::get_if<NoQuorum>(&message)) {
      log::info(options_.endpoints[endpoint_] + " is not in charge: " + lack->detail);
      if (handler_ == nullptr) {
        return leave_coordinator(lack->skip);
      }
    }
    handle(member_event::Received{std::move(message)});
  }
}

void Client::handle(const MemberEvent& each) {
  if (shutting_down_) {
    return;
  }
  if (handler_ == nullptr) {
    is_dismissed_ = is_dismissed_ || ends_its_part(each);
    early_events_.push_back(each);
    return;
  }
  const Instant now = monotonic_now();
  flight_.received(now, each);
  std::vector<MemberEffect> effects = machine_.handle(each);
  flight_.decided(now, effects);
  for (MemberEffect& one : effects) {
    std::visit([this](auto& which) { apply(which); }, one);
  }
  if (unwelcome_skip_ && connection_ != nullptr) {
    leave_coordinator(*std::exchange(unwelcome_skip_, std::nullopt));
  }
  flight_.write_if_requested();
}

void Client::apply(member_effect::RunView& run) {
  view_ = value(run.view.id);
  if (value(run.view.id) > 0) {
    end_views_up_to(ViewId{value(run.view.id) - 1});
  }
  handler_->run_view(run.view);
}

void Client::apply(member_effect::AbortGroup& abort) {
  end_views_up_to(abort.view);
  handler_->abort_group(abort.view);
}

void Client::apply(member_effect::Leave& leave) {
  has_left_ = true;
  search_.stop();
  gets_.end();  // the process is no member any more, so no coordinator answers it
  handler_->leave(leave);
}

void Client::apply(member_effect::Adopt& adopt) {
  if (options_.sentinel != nullptr) {
    options_.sentinel->adopt(adopt.incarnation, adopt.author);
  }
}

void Client::end_views_up_to(ViewId view) {
  gets_.end_views_up_to(view);
  std::erase_if(sets_, [view](const StoreSet& each) { return each.view <= view; });
}

void Client::send_report(Bytes payload, Instant happened) {
  asio::post(io_, [this, payload = std::move(payload), happened]() mutable {
    if (handler_ != nullptr) {  // otherwise start() sends it
      send(report_of(payload, happened));
    }
    reports_.add(std::move(payload), happened);
  });
}

Result<void> Client::store_set(ViewId view, const std::string& key, ByteSpan value) {
  asio::post(io_, [this, set = StoreSet{view, key, Bytes(value.begin(), value.end())}] {
    send(set);
    sets_.push_back(set);
  });
  return {};
}

Result<Bytes> Client::store_get(ViewId view, const std::string& key, Instant deadline) {
  ENSURE(std::this_thread::get_id() != thread_.get_id(), "the control thread must not wait");
  TRY(gets_.expect(view, key));
  asio::post(io_, [this, get = StoreGet{view, key}] { send(get); });
  return gets_.wait(view, key, deadline);
}

}  // namespace

Result<std::unique_ptr<MemberClient>> connect_member(const MemberClientOptions& options,
                                                     Instant deadline) {
  TRY_ASSIGN(FirstSession first,
             open_first_session(options.endpoints, options.token, first_hello(options), deadline,
                                options.gives_up));
  return std::unique_ptr<MemberClient>(
      std::make_unique<Client>(options, first.endpoint, std::move(first.session)));
}

Result<void> wait_for_reports(MemberClient& client, ViewId view, Instant deadline) {
  // A connection keeps its order, so the answer to this request shows that all earlier messages
  // arrived.
  const std::string key = "reports of " + std::to_string(value(client.id()));
  TRY(client.store_set(view, key, {}));
  TRY(client.store_get(view, key, deadline));
  return {};
}

}  // namespace mayfly::elastic
