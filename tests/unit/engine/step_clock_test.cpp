#include "engine/training/step_clock.hpp"

#include <gmock/gmock.h>

namespace mayfly::engine {
namespace {

Instant at(int ms) {
  return Instant{} + milliseconds(1000 + ms);
}

elastic::View view_of(std::vector<std::uint64_t> ids) {
  elastic::View view;
  for (const std::uint64_t id : ids) {
    elastic::ViewMember member;
    member.id = MemberId{id};
    view.members.push_back(member);
  }
  return view;
}

/// The maxima of two members' signals.
ReadySignals max_of(const ReadySignals& a, const ReadySignals& b) {
  ReadySignals most{std::max(a.ready_us, b.ready_us), a.slowest_before, a.waits_before};
  if (b.slowest_before) {
    most.slowest_before = b.slowest_before;
  }
  if (a.waits_before && b.waits_before) {
    const ExchangeWaits& x = *a.waits_before;
    const ExchangeWaits& y = *b.waits_before;
    most.waits_before = {y.least_us <= x.least_us ? y.least : x.least,
                         std::min(x.least_us, y.least_us), std::max(x.most_us, y.most_us)};
  }
  return most;
}

/// Two members that compute the same steps. The tests check the times that rank 0 returns.
class Pair : public ::testing::Test {
 protected:
  /// A step that begins with the previous commit, at `begin`. Both members commit it at
  /// `begin + 100`. Returns the times of the step before, as rank 0 knows them.
  std::optional<StepTimes> step(int begin, int own_ready, int others_ready, int others_wait,
                                bool is_first = false) {
    others_waits_.fetch += milliseconds(others_wait / 3);
    others_waits_.prep += milliseconds(others_wait - others_wait / 3);
    const ReadySignals mine = clock_.ready(at(begin + own_ready), own_waits_, Rank{0}, is_first);
    const ReadySignals theirs =
        other_.ready(at(begin + others_ready), others_waits_, Rank{1}, is_first);
    const ReadySignals both = max_of(mine, theirs);
    *own_waits_.members += milliseconds(own_exchange_wait_);
    *others_waits_.members += milliseconds(others_exchange_wait_);
    clock_.reduced(at(begin + 90), both, own_waits_.members);
    other_.reduced(at(begin + 90), both, others_waits_.members);
    (void)other_.committed(at(begin + 100), others_waits_, view_);
    return clock_.committed(at(begin + 100), own_waits_, view_);
  }

  const elastic::View view_ = view_of({4, 7});
  StepClock clock_;
  StepClock other_;
  MemberWaits own_waits_{{}, {}, Duration{}};
  MemberWaits others_waits_{{}, {}, Duration{}};
  int own_exchange_wait_ = 0;  // milliseconds per step that rank 0 waits for rank 1
  int others_exchange_wait_ = 0;
};

TEST_F(Pair, AStepIsDividedByItsSlowestMemberInTheStepAfter) {
  EXPECT_FALSE(step(0, 20, 60, 0, true)) << "the first of a view";
  EXPECT_FALSE(step(100, 20, 60, 15)) << "of a step before that began one after the other";
  const std::optional<StepTimes> times = step(200, 50, 30, 0);
  ASSERT_TRUE(times);
  EXPECT_EQ(times->slowest, 7u);
  EXPECT_DOUBLE_EQ(times->compute_ms, 45);
  EXPECT_DOUBLE_EQ(times->fetch_ms, 5);
  EXPECT_DOUBLE_EQ(times->prep_ms, 10);
  EXPECT_DOUBLE_EQ(times->exchange_ms, 30);
  EXPECT_DOUBLE_EQ(times->update_ms, 10);
  const std::optional<StepTimes> next = step(300, 20, 60, 0);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->slowest, 4u);
  EXPECT_DOUBLE_EQ(next->compute_ms, 50);
  EXPECT_DOUBLE_EQ(next->exchange_ms, 40);
}

TEST_F(Pair, WhoWaitsLeastForOthersHasHeldUpTheExchange) {
  (void)step(0, 20, 60, 0, true);
  own_exchange_wait_ = 68;  // for 40 of them rank 1 is not ready yet
  others_exchange_wait_ = 3;
  const auto first = step(100, 20, 60, 0);
  EXPECT_FALSE(first) << "what is waited in the first step of a view says nothing";
  const std::optional<StepTimes> times = step(200, 20, 60, 0);
  ASSERT_TRUE(times && times->held_up);
  EXPECT_EQ(times->held_up->member, 7u);
  EXPECT_DOUBLE_EQ(times->held_up->ms, 25);
  own_exchange_wait_ = 41;
  others_exchange_wait_ = 100;  // more than the exchange took
  (void)step(300, 20, 60, 0);
  const std::optional<StepTimes> next = step(400, 20, 60, 0);
  ASSERT_TRUE(next && next->held_up);
  EXPECT_EQ(next->held_up->member, 4u);
  EXPECT_DOUBLE_EQ(next->held_up->ms, next->exchange_ms);
}

TEST_F(Pair, AGroupThatDoesNotMeasureItsWaitsNamesNobody) {
  StepClock alone;
  for (const int begin : {0, 100, 200, 300}) {
    const ReadySignals mine = alone.ready(at(begin + 50), {}, Rank{0}, begin == 0);
    EXPECT_FALSE(mine.waits_before);
    alone.reduced(at(begin + 90), mine, {});
    const std::optional<StepTimes> times = alone.committed(at(begin + 100), {}, view_);
    EXPECT_FALSE(times && times->held_up);
  }
}

TEST_F(Pair, AnEvaluationAndACopyOfTheStateAreLeftOut) {
  (void)step(0, 20, 60, 0, true);
  clock_.copied_state(milliseconds(4));
  clock_.evaluated(milliseconds(10));
  other_.evaluated(milliseconds(10));
  (void)step(100, 20, 60, 0);
  const std::optional<StepTimes> times = step(200, 20, 60, 0);
  ASSERT_TRUE(times);
  EXPECT_DOUBLE_EQ(times->compute_ms, 50);
  EXPECT_DOUBLE_EQ(times->compute_ms + times->exchange_ms + times->update_ms, 86);
  EXPECT_DOUBLE_EQ(times->update_ms, 6);
}

TEST_F(Pair, ANewViewBeginsAnew) {
  (void)step(0, 20, 60, 0, true);
  (void)step(100, 20, 60, 0);
  clock_.begin_view();
  other_.begin_view();
  EXPECT_FALSE(step(200, 20, 60, 0, true));
  EXPECT_FALSE(step(300, 20, 60, 0));
  EXPECT_TRUE(step(400, 20, 60, 0));
}

TEST_F(Pair, AStepThatIsComputedTwiceIsDividedAsOne) {
  (void)step(0, 20, 60, 0, true);
  (void)step(100, 20, 60, 0);
  (void)clock_.ready(at(210), {}, Rank{0}, false);
  const ReadySignals theirs = other_.ready(at(220), {}, Rank{1}, false);
  clock_.reduced(at(225), theirs, {});
  other_.reduced(at(225), theirs, {});
  const std::optional<StepTimes> before = step(200, 50, 70, 0);
  ASSERT_TRUE(before) << "told in both attempts";
  EXPECT_EQ(before->slowest, 7u);
  const std::optional<StepTimes> times = step(300, 20, 60, 0);
  ASSERT_TRUE(times);
  EXPECT_DOUBLE_EQ(times->compute_ms, 70);
}

}  // namespace
}  // namespace mayfly::engine
