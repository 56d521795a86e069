#include "engine/membership/peer_reach.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>

#include "base/net/sockets.hpp"

namespace mayfly::engine {
namespace {

constexpr Instant kNow = Instant{} + seconds(100);

std::string address_of(int listener) {
  return collectives::to_string({"127.0.0.1", bound_endpoint(listener).port, "", ""});
}

/// Leaves connections unanswered, as its queue is full, until it is closed.
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

/// How often wait() has paused; the `last` time there is no need any more.
int pauses(
    PeerReach& reach, int last, const std::function<void()>& in_pause = [] {}) {
  int count = 0;
  reach.wait([&](Duration /*most*/) {
    in_pause();
    return ++count >= last;
  });
  return count;
}

TEST(PeerReach, KeepsNobodyAwayWhoseViewWorked) {
  PeerReach reach;
  EXPECT_EQ(pauses(reach, 1), 0);
  reach.evicted({}, monotonic_now());
  EXPECT_EQ(pauses(reach, 1), 0);
}

TEST(PeerReach, WhoAnswersOrRefusesIsThere) {
  const Result<UniqueFd> listener = listen_tcp({"127.0.0.1", 0});
  std::string refusing;
  {
    const Result<UniqueFd> closed = listen_tcp({"127.0.0.1", 0});
    refusing = address_of(closed.value().get());
  }
  PeerReach reach;
  reach.evicted({address_of(listener.value().get()), refusing, "mpi:3"}, monotonic_now());
  EXPECT_EQ(pauses(reach, 1), 0);
}

TEST(PeerReach, WaitsWhileOneOfThemIsSilent) {
  const Result<UniqueFd> listener = listen_tcp({"127.0.0.1", 0});
  SilentPeer silent;
  PeerReach reach;
  reach.evicted({address_of(listener.value().get()), silent.address()}, monotonic_now());
  EXPECT_EQ(pauses(reach, 9, [&] { silent.close(); }), 1);
}

TEST(PeerReach, WaitsNoLongerThanThereIsNeed) {
  const SilentPeer silent;
  PeerReach reach;
  reach.evicted({silent.address()}, monotonic_now());
  EXPECT_EQ(pauses(reach, 2), 2);
  EXPECT_EQ(pauses(reach, 1), 0);
}

TEST(PeerReach, WaitsLongerEachTimeInARowAndNeverForEver) {
  PeerReach reach;
  Duration expected = PeerReach::kFirstWait;
  for (int times = 0; times < 9; ++times) {
    reach.evicted({"tcp:127.0.0.1:1"}, kNow);
    EXPECT_EQ(reach.until() - kNow, expected) << times;
    expected = std::min(2 * expected, PeerReach::kLongestWait);
  }
  reach.evicted({}, kNow);
  reach.evicted({"tcp:127.0.0.1:1"}, kNow);
  EXPECT_EQ(reach.until() - kNow, PeerReach::kFirstWait);
}

TEST(PeerReach, TriesWithoutAnAnswerWhenItIsTime) {
  const SilentPeer silent;
  PeerReach reach;
  reach.evicted({silent.address()}, monotonic_now() - PeerReach::kFirstWait);
  EXPECT_EQ(pauses(reach, 1), 0);
}

}  // namespace
}  // namespace mayfly::engine
