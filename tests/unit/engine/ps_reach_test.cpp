#include "engine/parameter_server/ps_reach.hpp"
#include "base/net/wake_up.hpp"

#include <gtest/gtest.h>

#include "base/net/sockets.hpp"

namespace mayfly::engine {
namespace {

constexpr Instant kPsNow = Instant{} + seconds(100);

/// Where nobody listens, although the host is there.
std::string closed_address() {
  const Result<UniqueFd> listener = listen_tcp({"127.0.0.1", 0});
  return collectives::to_string({"127.0.0.1", bound_endpoint(listener.value().get()).port, "", ""});
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
  const Result<UniqueFd> listener = listen_tcp({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  const auto bound = bound_endpoint(listener.value().get());
  const WakeUp wake;
  PsReach reach;
  reach.cut_off(collectives::to_string({"127.0.0.1", bound.port, "", ""}), kPsNow);
  EXPECT_TRUE(reach.probe_once(wake));
  EXPECT_FALSE(reach.is_away(kPsNow));
}

TEST(PsReach, StaysAwayWhileNobodyListens) {
  const WakeUp wake;
  wake.notify();
  PsReach reach;
  reach.cut_off(closed_address(), kPsNow);
  EXPECT_FALSE(reach.probe_once(wake));
  EXPECT_TRUE(reach.is_away(kPsNow));
}

}  // namespace
}  // namespace mayfly::engine
