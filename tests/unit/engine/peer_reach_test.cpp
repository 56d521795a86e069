#include "engine/training/peer_reach.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>

#include "base/net/sockets.hpp"

namespace mayfly::engine {
namespace {

constexpr ReachRule kHostsAnswer{.takes_refusals = true, .first_wait = seconds(30)};
constexpr ReachRule kListenersAnswer{.takes_refusals = false, .first_wait = seconds(30)};
constexpr Instant kNow = Instant{} + seconds(100);

std::string address_of(int listener) {
  return collectives::to_string({"127.0.0.1", bound_endpoint(listener).port, "", ""});
}

/// An address of this host where no process listens.
std::string refusing_address() {
  const Result<UniqueFd> listener = listen_tcp({"127.0.0.1", 0});
  return address_of(listener.value().get());
}

/// Leaves connections unanswered until it is closed, because its queue is full.
class SilentPeer {
 public:
  SilentPeer() : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(listener_->get(), reinterpret_cast<sockaddr*>(&here), sizeof here), 0);
    EXPECT_EQ(::listen(listener_->get(), 0), 0);
    address_ = address_of(listener_->get());
    const auto port = bound_endpoint(listener_->get()).port;
    for (UniqueFd& fd : fillers_) {
      fd = std::move(start_connect_tcp({"127.0.0.1", port})).value();
    }
  }
  [[nodiscard]] const std::string& address() const { return address_; }
  void close() { listener_.reset(); }

 private:
  std::optional<UniqueFd> listener_;
  UniqueFd fillers_[3];
  std::string address_;
};

/// Returns how often wait() asks whether it is over, which is true from the `last` question on. The
/// questions also wake it, so that it sleeps neither for answers nor between its attempts.
int questions(PeerReach& reach, int last) {
  const WakeUp wake;
  int count = 0;
  reach.wait(wake, [&] {
    wake.notify();
    return ++count >= last;
  });
  return count;
}

/// Waits until all peers have answered.
void wait_for_all(PeerReach& reach) {
  const WakeUp wake;
  reach.wait(wake, [] { return false; });
}

TEST(PeerReach, KeepsNobodyAwayWhoWasNotCutOff) {
  PeerReach reach(kHostsAnswer);
  EXPECT_FALSE(reach.is_away(kNow));
  reach.cut_off({}, kNow);
  EXPECT_FALSE(reach.is_away(kNow));
  reach.cut_off({"mpi:3"}, kNow);
  EXPECT_FALSE(reach.is_away(kNow)) << "no address of the tcp transport";
  EXPECT_EQ(questions(reach, 1), 0);
}

TEST(PeerReach, KeepsAwayForLongerEachTimeInARowAndNeverForEver) {
  PeerReach reach(kHostsAnswer);
  Instant now = kNow;
  Duration expected = kHostsAnswer.first_wait;
  for (int times = 0; times < 9; ++times) {
    reach.cut_off({"tcp:127.0.0.1:1"}, now);
    EXPECT_EQ(reach.until() - now, expected) << times;
    EXPECT_TRUE(reach.is_away(reach.until() - milliseconds(1)));
    EXPECT_FALSE(reach.is_away(reach.until()));
    now = reach.until();
    expected = std::min(2 * expected, 16 * kHostsAnswer.first_wait);
  }
}

TEST(PeerReach, BeginsAgainOnceAllWereReached) {
  PeerReach reach(kHostsAnswer);
  const auto wait_after = [&](const std::function<void()>& what) {
    reach.cut_off({"tcp:127.0.0.1:1"}, kNow);
    what();
    EXPECT_FALSE(reach.is_away(kNow));
    reach.cut_off({"tcp:127.0.0.1:1"}, kNow);
    return reach.until() - kNow;
  };
  EXPECT_EQ(wait_after([&] { reach.reached_all(); }), kHostsAnswer.first_wait);
  EXPECT_EQ(wait_after([&] { reach.cut_off({}, kNow); }), kHostsAnswer.first_wait);
}

TEST(PeerReach, WhoListensHasAnswered) {
  const Result<UniqueFd> listener = listen_tcp({"127.0.0.1", 0});
  for (const ReachRule& rule : {kHostsAnswer, kListenersAnswer}) {
    PeerReach reach(rule);
    reach.cut_off({address_of(listener.value().get())}, monotonic_now());
    wait_for_all(reach);
    EXPECT_FALSE(reach.is_away(monotonic_now()));
  }
}

TEST(PeerReach, ARefusalIsAnAnswerIfTheRuleSaysSo) {
  PeerReach hosts(kHostsAnswer);
  hosts.cut_off({refusing_address()}, monotonic_now());
  wait_for_all(hosts);
  EXPECT_FALSE(hosts.is_away(monotonic_now()));
  PeerReach listeners(kListenersAnswer);
  listeners.cut_off({refusing_address()}, monotonic_now());
  EXPECT_EQ(questions(listeners, 3), 3);
  EXPECT_TRUE(listeners.is_away(monotonic_now()));
}

TEST(PeerReach, AHostWithoutARouteToItHasNotAnswered) {
  const std::string nowhere = "tcp:224.0.0.1:1";  // TCP has no route to a multicast address
  ASSERT_EQ(start_connect_tcp({"224.0.0.1", 1}).error().code, Errc::kUnreachable);
  PeerReach reach(kHostsAnswer);
  reach.cut_off({nowhere}, monotonic_now());
  EXPECT_EQ(questions(reach, 3), 3);
  EXPECT_TRUE(reach.is_away(monotonic_now()));
}

TEST(PeerReach, WithoutADescriptorToAskWithNobodyHasAnswered) {
  PeerReach reach(kHostsAnswer);
  reach.cut_off({refusing_address()}, monotonic_now());
  const WakeUp wake;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  // All descriptors below this limit are in use.
  const rlimit none{static_cast<rlim_t>(wake.fd()) + 1, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  int count = 0;
  reach.wait(wake, [&] {
    wake.notify();
    return ++count >= 3;
  });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(count, 3);
  EXPECT_TRUE(reach.is_away(monotonic_now()));
}

TEST(PeerReach, WaitsWhileOneOfThemIsSilent) {
  const Result<UniqueFd> listener = listen_tcp({"127.0.0.1", 0});
  SilentPeer silent;
  PeerReach reach(kHostsAnswer);
  reach.cut_off({address_of(listener.value().get()), silent.address()}, monotonic_now());
  EXPECT_EQ(questions(reach, 2), 2);
  EXPECT_TRUE(reach.is_away(monotonic_now()));
  silent.close();
  wait_for_all(reach);
  EXPECT_FALSE(reach.is_away(monotonic_now()));
}

TEST(PeerReach, WaitsNoLongerThanThereIsNeed) {
  const SilentPeer silent;
  PeerReach reach(kHostsAnswer);
  reach.cut_off({silent.address()}, monotonic_now());
  EXPECT_EQ(questions(reach, 1), 1);
  EXPECT_TRUE(reach.is_away(monotonic_now()));
}

TEST(PeerReach, TriesWithoutAnAnswerWhenItIsTime) {
  const SilentPeer silent;
  PeerReach reach(kHostsAnswer);
  reach.cut_off({silent.address()}, monotonic_now() - kHostsAnswer.first_wait);
  EXPECT_EQ(questions(reach, 1), 0);
}

}  // namespace
}  // namespace mayfly::engine
