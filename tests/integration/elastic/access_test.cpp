// Which clients the coordinator admits, and that refused clients do not disturb the job.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <optional>
#include <thread>
#include <variant>

#include "base/net/sockets.hpp"
#include "base/random.hpp"
#include "elastic/net/frame.hpp"
#include "elastic/net/handshake.hpp"
#include "elastic/net/job_token.hpp"
#include "tests/integration/elastic/test_job.hpp"

namespace mayfly::elastic {
namespace {

UniqueFd connect_raw(const TestJob& job) {
  Result<UniqueFd> fd =
      connect_tcp(parse_endpoint(job.endpoint()).value(), monotonic_now() + kHangBound);
  EXPECT_TRUE(fd.ok());
  return std::move(fd).value();
}

void send_raw(const UniqueFd& fd, ByteSpan bytes) {
  (void)::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

/// Reads messages until the server closes.
void expect_closed(const UniqueFd& fd) {
  Result<Message> message = receive_message(fd.get(), monotonic_now() + kHangBound);
  while (message.ok()) {
    message = receive_message(fd.get(), monotonic_now() + kHangBound);
  }
  EXPECT_EQ(message.error().code, Errc::kPeerLost);
}

/// A job that runs its first view. Connections of other clients must not change that view.
class Access : public testing::Test {
 protected:
  Access() : worker_(job_.add_worker()) {
    view_ = job_.observer().wait_for_view({worker_->id()});
    worker_->wait_for_view(view_.id);
  }
  ~Access() override {
    EXPECT_EQ(job_.observer().seen().views.size(), 1u);
    EXPECT_TRUE(worker_->aborted().empty());
    EXPECT_EQ(job_.server().status().members.size(), 1u);
  }

  TestJob job_{1};
  std::unique_ptr<ToyWorker> worker_;
  View view_;
};

TEST_F(Access, AWrongTokenIsRefusedAndTold) {
  const auto refused = job_.connect(make_token());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::kRefused);
  EXPECT_EQ(refused.error().detail, "wrong token");
}

// It has lost its coordinator, and must not end because another job was started at that address.
TEST_F(Access, AMemberWithAnotherTokenMayLookForItsCoordinatorOn) {
  const auto refusal = [this](Role role, MemberId member) -> std::optional<Refusal> {
    Hello hello;
    hello.role = role;
    hello.member = member;
    const Result<Answer> answer =
        ask_for_admission(job_.endpoint(), make_token(), hello, monotonic_now() + kHangBound);
    const auto* refused = answer.ok() ? std::get_if<Refused>(&answer.value().verdict) : nullptr;
    return refused == nullptr ? std::nullopt : std::optional(refused->refusal);
  };
  EXPECT_EQ(refusal(Role::kWorker, worker_->id()), Refusal::kElsewhere);
  EXPECT_EQ(refusal(Role::kSentinel, worker_->id()), Refusal::kElsewhere);
  EXPECT_EQ(refusal(Role::kWorker, MemberId{}), Refusal::kFinal);
}

TEST_F(Access, AnOperatorWithAWrongTokenIsRefused) {
  const auto reply = send_command(job_.endpoint(), make_token(), Command{"stop", ""}, kHangBound);
  EXPECT_EQ(reply.error().code, Errc::kRefused);
}

TEST_F(Access, ASentinelOfNobodyIsRefused) {
  Hello hello;
  hello.role = Role::kSentinel;
  hello.member = MemberId{4711};
  const auto session =
      open_session(job_.endpoint(), job_.token(), hello, monotonic_now() + kHangBound);
  EXPECT_EQ(session.error().code, Errc::kRefused);
}

TEST_F(Access, GarbageIsDisconnected) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random{CounterRandom(seed)};
    Bytes junk(1 + random.below(5000));
    for (std::byte& b : junk) {
      b = static_cast<std::byte>(random.below(256));
    }
    const UniqueFd fd = connect_raw(job_);
    send_raw(fd, junk);
    ::shutdown(fd.get(), SHUT_WR);
    expect_closed(fd);
  }
}

TEST_F(Access, AStrangersOversizedFrameIsDisconnectedAtItsHeader) {
  const UniqueFd fd = connect_raw(job_);
  const std::uint32_t length = (64u << 10) + 1;
  send_raw(fd, std::as_bytes(std::span(&length, 1)));
  expect_closed(fd);
}

TEST_F(Access, AMembersOversizedFrameCostsOnlyItsOwnConnection) {
  Result<OpenSession> session =
      open_session(job_.endpoint(), job_.token(), Hello{}, monotonic_now() + kHangBound);
  ASSERT_TRUE(session.ok());
  const std::uint32_t length = kMessageBytesMax + 1;
  send_raw(session.value().fd, std::as_bytes(std::span(&length, 1)));
  expect_closed(session.value().fd);
  job_.observer().wait_for_note("lost", session.value().welcome.member);
}

/// A message of each kind that only the coordinator, a sentinel or an operator sends.
std::vector<Message> not_from_workers() {
  View view{ViewId{9}, 0, Step{}, Rank{0}, {}, {}};
  view.members.push_back({MemberId{1}, "", {}, 0, 1});
  NewViewDelta delta;
  delta.delta.shares.emplace_back();
  return {Challenge{make_nonce()},
          Hello{},
          Welcome{},
          Refused{},
          WorkerDied{},
          Stop{},
          NewView{view},
          delta,
          StoreValue{},
          Dismiss{},
          NoQuorum{},
          Command{"stop", ""},
          CommandReply{},
          ReportsTaken{}};
}

TEST_F(Access, EveryMessageThatAWorkerMayNotSendCostsItsConnection) {
  for (const Message& message : not_from_workers()) {
    SCOPED_TRACE(name_of(message));
    Result<OpenSession> session =
        open_session(job_.endpoint(), job_.token(), Hello{}, monotonic_now() + kHangBound);
    ASSERT_TRUE(session.ok());
    const int fd = session.value().fd.get();
    ASSERT_TRUE(send_message(fd, message, monotonic_now() + kHangBound).ok());
    expect_closed(session.value().fd);
    const MemberId member = session.value().welcome.member;
    EXPECT_EQ(job_.observer().wait_for_note("lost", member).note.detail,
              std::string("unexpected ") + name_of(message));
  }
}

/// The next message of kind M; messages of other kinds are skipped.
template <typename M>
M next_message(int fd) {
  while (true) {
    const Result<Message> message = receive_message(fd, monotonic_now() + kHangBound);
    if (!message.ok()) {
      ADD_FAILURE() << message.error().detail;
      return {};
    }
    if (const M* found = std::get_if<M>(&message.value())) {
      return *found;
    }
  }
}

TEST(AccessToAJob, AMemberMayAskForTheWholeView) {
  TestJob job(1);
  Result<OpenSession> session =
      open_session(job.endpoint(), job.token(), Hello{}, monotonic_now() + kHangBound);
  ASSERT_TRUE(session.ok());
  const int fd = session.value().fd.get();
  ASSERT_TRUE(send_message(fd, Ready{}, monotonic_now() + kHangBound).ok());
  const View first = next_message<NewView>(fd).view;
  ASSERT_TRUE(send_message(fd, ViewWanted{first.id}, monotonic_now() + kHangBound).ok());
  EXPECT_EQ(next_message<NewView>(fd).view, first);
}

TEST_F(Access, AFloodOfSilentConnectionsKeepsNobodyOut) {
  std::vector<UniqueFd> flood;
  for (int i = 0; i < 300; ++i) {
    flood.push_back(connect_raw(job_));
  }
  EXPECT_EQ(job_.command("hello").text, "heard hello ");
  expect_closed(flood.front());
}

std::size_t open_descriptors() {
  const auto folder = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(folder), end(folder)));
}

// The coordinator sends the reason to a refused client, and keeps the connection open for a moment
// so that the client can read it. A thousand refused clients must not use a thousand descriptors.
TEST_F(Access, AFloodOfWrongTokensIsBoundedAndKeepsNobodyOut) {
  constexpr std::size_t kFlood = 1000;
  const std::size_t before = open_descriptors();
  std::vector<UniqueFd> flood;
  for (std::size_t i = 0; i < kFlood; ++i) {
    flood.push_back(connect_raw(job_));
    ASSERT_TRUE(receive_message(flood.back().get(), monotonic_now() + kHangBound).ok());
    Hello hello;
    hello.nonce = make_nonce();
    hello.proof = make_nonce();
    send_raw(flood.back(), to_frame(hello));
  }
  EXPECT_EQ(job_.command("hello").text, "heard hello ");
  EXPECT_LT(open_descriptors(), before + kFlood + 300) << "on both sides of the connections";
}

TEST(AccessToAJob, AnotherFingerprintIsRefusedWithTheDifference) {
  CoordinatorOptions core;
  core.fingerprint = {{"model", "resnet20"}, {"seed", "1"}};
  TestJob job(1, core);
  const auto refused = job.connect(job.token(), {{"model", "resnet56"}, {"seed", "1"}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::kRefused);
  EXPECT_NE(refused.error().detail.find("resnet56"), std::string::npos);
  EXPECT_TRUE(job.connect(job.token(), core.fingerprint).ok());
}

TEST(AccessToAJob, APortInUseIsAnErrorThatNamesIt) {
  TestJob job(1);
  CoordinatorServerOptions options;
  options.token = make_token();
  options.port = parse_endpoint(job.endpoint()).value().port;
  RecordingObserver observer;
  const auto second = start_coordinator(std::move(options), observer);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Errc::kIo);
  EXPECT_NE(second.error().detail.find(job.endpoint()), std::string::npos);
}

// A client without the token must not keep a connection by a handshake that never ends.
TEST(AccessToAJob, AnUnfinishedTlsHandshakeIsClosedAfterAWhile) {
  CoordinatorServerOptions options;
  options.token = make_token(true);
  options.begins_later = true;
  RecordingObserver observer;
  const auto server = start_coordinator(std::move(options), observer);
  ASSERT_TRUE(server.ok());
  const UniqueFd client =
      connect_tcp(parse_endpoint(server.value()->endpoint()).value(), monotonic_now() + kHangBound)
          .value();
  send_raw(client, Bytes{std::byte{0x16}});  // the first byte of a record
  expect_closed(client);
}

TEST(AccessToAJob, WhoHasNotStartedYetKnowsThatItIsToLeave) {
  TestJob job(2);
  const auto client = job.connect(job.token());
  ASSERT_TRUE(client.ok()) << client.error().detail;
  EXPECT_FALSE(client.value()->is_dismissed());
  job.server().stop("no patience");
  const Instant deadline = monotonic_now() + kHangBound;
  while (!client.value()->is_dismissed() && monotonic_now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(client.value()->is_dismissed());
}

TEST(AccessToAJob, WithoutACoordinatorConnectingEndsAtTheDeadline) {
  std::string endpoint;
  {
    TestJob gone(1);
    endpoint = gone.endpoint();
  }
  MemberClientOptions options;
  options.endpoints = {endpoint};
  options.token = make_token();
  const auto client = connect_member(options, monotonic_now() + milliseconds(120));
  ASSERT_FALSE(client.ok());
  EXPECT_NE(client.error().detail.find(endpoint), std::string::npos);
}

// The kernel accepts the connection for a listener that never sends anything.
TEST(AccessToAJob, APortThatNeverAnswersEndsAtTheDeadline) {
  Result<UniqueFd> listener = listen_tcp(Endpoint{"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  const std::string endpoint =
      to_string(Endpoint{"127.0.0.1", bound_endpoint(listener.value().get()).port});
  const auto reply = send_command(endpoint, make_token(), Command{"status", ""}, milliseconds(100));
  EXPECT_EQ(reply.error().code, Errc::kDeadline);
}

/// A coordinator server that accepts connections but has no job yet; begin() starts its job.
class NotBegun : public testing::Test {
 protected:
  NotBegun() {
    CoordinatorServerOptions options;
    options.token = token_;
    options.begins_later = true;
    server_ = start_coordinator(std::move(options), observer_).value();
  }
  [[nodiscard]] Result<Answer> ask(Role role) const {
    Hello hello;
    hello.role = role;
    return ask_for_admission(server_->endpoint(), token_, hello, monotonic_now() + kHangBound);
  }
  void begin(const CoordinatorOptions& core = {}) {
    server_->begin([core] { return core; });
  }
  /// The answer to a worker that asks again until it is admitted.
  [[nodiscard]] Result<Answer> join() const {
    const Instant deadline = monotonic_now() + kHangBound;
    Result<Answer> taken = ask(Role::kWorker);
    while (taken.ok() && !std::holds_alternative<Welcome>(taken.value().verdict) &&
           monotonic_now() < deadline) {
      taken = ask(Role::kWorker);
    }
    return taken;
  }

  const Bytes token_ = make_token();
  RecordingObserver observer_;
  std::unique_ptr<CoordinatorServer> server_;
};

TEST_F(NotBegun, SendsWorkersAwayForAWhile) {
  EXPECT_EQ(server_->status().phase, JobPhase::kWaiting);
  const Result<Answer> early = ask(Role::kWorker);
  ASSERT_TRUE(early.ok()) << early.error().detail;
  EXPECT_EQ(std::get<Refused>(early.value().verdict).refusal, Refusal::kElsewhere);
  server_->drain(MemberId{1}, "nobody");
  server_->pause(true);
  begin();
  begin();
  const Result<Answer> taken = join();
  ASSERT_TRUE(taken.ok()) << taken.error().detail;
  EXPECT_TRUE(std::holds_alternative<Welcome>(taken.value().verdict));
}

// Without heartbeats members would look for another coordinator.
TEST_F(NotBegun, SendsHeartbeatsOnceItHasBegunAJobWithStandbys) {
  CoordinatorOptions core;
  core.quorum = true;
  core.silence_max = seconds(600);  // no member is probed
  begin(core);
  const Result<Answer> taken = join();
  ASSERT_TRUE(taken.ok()) << taken.error().detail;
  const auto heard = receive_message(taken.value().fd.get(), monotonic_now() + kHangBound);
  ASSERT_TRUE(heard.ok()) << heard.error().detail;
  EXPECT_TRUE(std::holds_alternative<Heartbeat>(heard.value()));
}

TEST_F(NotBegun, EndsWhenItIsStoppedAndStaysSo) {
  server_->stop("no patience");
  EXPECT_TRUE(observer_.wait_until(
      [](const auto& seen) { return seen.outcomes == std::vector{Outcome::kStopped}; }, "the end"));
  server_->fail("too late");
  begin();
  const Result<Answer> late = ask(Role::kWorker);
  ASSERT_TRUE(late.ok()) << late.error().detail;
  EXPECT_TRUE(std::holds_alternative<Refused>(late.value().verdict));
  EXPECT_EQ(observer_.seen().outcomes.size(), 1u);
}

/// A standby with the present job's member 1. Before that member, the sentinel of a member 1 of an
/// earlier job had connected, which the standby could not know.
TEST(AccessToAStandby, ASentinelThatCameBeforeItsJobWasKnownSpeaksForNoMemberOfAnotherOne) {
  CoordinatorServerOptions options;
  const Bytes token = options.token = make_token();
  options.core.quorum = options.core.standby = true;
  options.core.silence_max = seconds(600);
  RecordingObserver observer;
  const auto standby = start_coordinator(std::move(options), observer).value();
  const auto ask = [&](Role role, std::uint64_t job) {
    Hello hello;
    hello.role = role;
    hello.member = MemberId{1};
    hello.job = hello.author = job;
    hello.incarnation = Incarnation{1};
    return ask_for_admission(standby->endpoint(), token, hello, monotonic_now() + kHangBound)
        .value();
  };
  const Answer sentinel = ask(Role::kSentinel, 77);
  ASSERT_TRUE(std::holds_alternative<Welcome>(sentinel.verdict));
  const Answer member = ask(Role::kWorker, 501);
  ASSERT_TRUE(std::holds_alternative<Welcome>(member.verdict));
  const WorkerDied death{"killed", true, Incarnation{1}, 77};
  ASSERT_TRUE(send_message(sentinel.fd.get(), death, monotonic_now() + kHangBound).ok());
  expect_closed(sentinel.fd);
  EXPECT_EQ(standby->status().members.size(), 1u);
  for (const auto& timed : observer.seen().notes) {
    EXPECT_NE(timed.note.kind, "lost") << timed.note.detail;
  }
}

}  // namespace
}  // namespace mayfly::elastic
