// The sessions of a shard over pairs of connected sockets.

#include "collectives/parameter_server/shard_sessions.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>

namespace mayfly::parameter_server {
namespace {

constexpr std::uint64_t kSessionKey = 5;

/// Makes sockets whose other ends stay open.
class OpenSockets {
 public:
  UniqueFd one() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    others_.emplace_back(ends[1]);
    return UniqueFd(ends[0]);
  }
  /// As if the process at the other end of the newest one had ended; over TCP only the end of its
  /// data would show.
  void end_newest() { EXPECT_EQ(::shutdown(others_.back().get(), SHUT_WR), 0); }

 private:
  std::vector<UniqueFd> others_;
};

class ShardSessionsTest : public testing::Test {
 protected:
  Session& add() {
    sessions.add(sockets.one());
    return *sessions.all().back();
  }
  Session& add(MessageType type, std::uint64_t worker, std::uint64_t view = 1) {
    Header greeting;
    greeting.type = type;
    greeting.worker = worker;
    greeting.view = view;
    greeting.key = kSessionKey;
    Session& session = add();
    session.greet(greeting);
    return session;
  }
  void set_view(std::uint64_t id, ShardRole role) {
    sessions.set_view({ViewId{id}, kSessionKey, {MemberId{1}, MemberId{2}}, role, "", {}}, role);
  }

  OpenSockets sockets;
  ShardSessions sessions{ShardOptions(), 16};
};

TEST_F(ShardSessionsTest, AdmitsWorkersWhenTheirViewIsKnownAndEndsThoseThatAreRefused) {
  Session& silent = add();
  Session& member = add(MessageType::kHello, 1);
  Session& stranger = add(MessageType::kHello, 7);
  Session& early = add(MessageType::kHello, 2, 2);
  EXPECT_EQ(sessions.admit_next(), nullptr) << "no view is known";
  EXPECT_EQ(member.events() & POLLIN, 0) << "nothing is read until it is admitted";
  set_view(1, ShardRole::kLeads);
  EXPECT_EQ(sessions.admit_next(), &member);
  EXPECT_EQ(sessions.admit_next(), nullptr);
  EXPECT_EQ(sessions.of(MemberId{1}), &member);
  EXPECT_EQ(sessions.of(MemberId{2}), nullptr);
  EXPECT_NE(member.events() & POLLIN, 0);
  EXPECT_TRUE(stranger.is_over());
  EXPECT_FALSE(silent.is_over());
  EXPECT_FALSE(early.is_over()) << "its view may come";
  sessions.flush();
  EXPECT_EQ(sessions.all().size(), 3U);
}

TEST_F(ShardSessionsTest, ANewSessionOfAWorkerEndsItsOldOne) {
  set_view(1, ShardRole::kLeads);
  Session& old = add(MessageType::kHello, 1);
  EXPECT_EQ(sessions.admit_next(), &old);
  Session& now = add(MessageType::kHello, 1);
  EXPECT_EQ(sessions.admit_next(), &now);
  EXPECT_TRUE(old.is_over());
  EXPECT_EQ(sessions.of(MemberId{1}), &now);
}

TEST_F(ShardSessionsTest, CountsEverybodyButTheLeader) {
  set_view(1, ShardRole::kFollows);
  Session& leader = add(MessageType::kFollow, 0);
  (void)add();
  EXPECT_EQ(sessions.admit_next(), &leader);
  EXPECT_EQ(sessions.leader(), &leader);
  EXPECT_EQ(sessions.except_leader(), 1U);
  sessions.end_leader();
  EXPECT_EQ(sessions.leader(), nullptr);
  sessions.flush();
  EXPECT_EQ(sessions.all().size(), 1U);
}

TEST_F(ShardSessionsTest, EndsAStrangerThatIsGoneBeforeItsViewIsKnown) {
  Session& early = add(MessageType::kHello, 1);
  sockets.end_newest();
  pollfd polled{.fd = early.fd(), .events = early.events(), .revents = 0};
  ASSERT_EQ(::poll(&polled, 1, 0), 1);
  const auto nothing = [](const Header&) { return Result<PayloadTarget>(PayloadTarget{}); };
  early.serve(polled.revents, nothing, [](const Header&) { return Result<void>(); });
  EXPECT_TRUE(early.is_over());
}

TEST_F(ShardSessionsTest, EndsStrangersThatHaveWaitedForTooLong) {
  EXPECT_FALSE(sessions.next_late().has_value());
  set_view(1, ShardRole::kLeads);
  const Instant begun = monotonic_now();
  Session& worker = add(MessageType::kHello, 1);
  EXPECT_EQ(sessions.admit_next(), &worker);
  EXPECT_FALSE(sessions.next_late().has_value()) << "a worker may be silent";
  Session& waits = add(MessageType::kHello, 2, 2);
  Session& silent = add();
  const Instant end = monotonic_now();
  EXPECT_EQ(sessions.next_late(), silent.stranger_until());
  sessions.end_late(begun + Session::kGreetingTimeout - milliseconds(1));
  EXPECT_FALSE(silent.is_over());
  sessions.end_late(end + Session::kGreetingTimeout);
  EXPECT_TRUE(silent.is_over());
  EXPECT_FALSE(waits.is_over()) << "its view may come";
  EXPECT_EQ(sessions.next_late(), waits.stranger_until());
  sessions.end_late(end + Session::kAdmissionTimeout);
  EXPECT_TRUE(waits.is_over());
  EXPECT_FALSE(worker.is_over());
  EXPECT_FALSE(sessions.next_late().has_value());
}

TEST_F(ShardSessionsTest, EndsASilentStrangerWhenThereAreTooMany) {
  set_view(1, ShardRole::kLeads);
  Session& worker = add(MessageType::kHello, 1);
  EXPECT_EQ(sessions.admit_next(), &worker);
  Session& waits = add(MessageType::kHello, 2, 2);
  Session& silent = add();
  for (std::size_t i = 2; i < ShardSessions::kStrangersMax; ++i) {
    (void)add();
  }
  EXPECT_FALSE(silent.is_over());
  (void)add();
  EXPECT_TRUE(silent.is_over()) << "the oldest that has said nothing";
  EXPECT_FALSE(waits.is_over());
  EXPECT_FALSE(worker.is_over());
}

}  // namespace
}  // namespace mayfly::parameter_server
