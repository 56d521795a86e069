#include "engine/parameter_server/ps_reach.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include "collectives/tcp/sockets.hpp"

namespace mayfly::engine {
namespace {

constexpr Instant kPsNow = Instant{} + seconds(100);

/// Where nobody listens, although the host is there.
std::string closed_address() {
  const Result<UniqueFd> listener = collectives::listen_tcp("127.0.0.1", 0);
  return collectives::to_string(
      {"127.0.0.1", collectives::bound_endpoint(listener.value().get()).value().second, "", ""});
}

TEST(PsReach, KeepsNobodyAwayWhoWasNeverCutOff) {
  PsReach reach;
  EXPECT_FALSE(reach.is_away(kPsNow));
}

TEST(PsReach, KeepsAwayForLongerEachTimeInARowAndNeverForEver) {
  PsReach reach;
  Instant now = kPsNow;
  Duration expected = PsReach::kFirstWait;
  for (int times = 0; times < 9; ++times) {
    reach.cut_off(closed_address(), now);
    EXPECT_EQ(reach.until() - now, expected) << times;
    EXPECT_TRUE(reach.is_away(now));
    EXPECT_TRUE(reach.is_away(reach.until() - milliseconds(1)));
    EXPECT_FALSE(reach.is_away(reach.until()));
    now = reach.until();
    expected = std::min(2 * expected, PsReach::kLongestWait);
  }
  reach.reached_all();
  reach.cut_off(closed_address(), now);
  EXPECT_EQ(reach.until() - now, PsReach::kFirstWait);
}

TEST(PsReach, ComesBackAsSoonAsSomebodyAnswers) {
  const Result<UniqueFd> listener = collectives::listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok());
  const auto bound = collectives::bound_endpoint(listener.value().get());
  const UniqueFd wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  PsReach reach;
  reach.cut_off(collectives::to_string({"127.0.0.1", bound.value().second, "", ""}), kPsNow);
  EXPECT_TRUE(reach.probe_once(wake.get()));
  EXPECT_FALSE(reach.is_away(kPsNow));
}

TEST(PsReach, StaysAwayWhileNobodyListens) {
  const UniqueFd wake(::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC));
  PsReach reach;
  reach.cut_off(closed_address(), kPsNow);
  EXPECT_FALSE(reach.probe_once(wake.get()));
  EXPECT_TRUE(reach.is_away(kPsNow));
}

}  // namespace
}  // namespace mayfly::engine
