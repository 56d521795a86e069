#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/elastic/coordinator_harness.hpp"

// Speeds that change while a view runs.

namespace mayfly::elastic {
namespace {

using testing::ElementsAre;

class CoordinatorSpeeds : public testing::Test {
 protected:
  static CoordinatorOptions options() {
    CoordinatorOptions options;
    options.microbatches = 8;
    options.initial_workers = 2;
    options.view_max = 2;
    options.silence_max = seconds(1000);
    options.stragglers = {.factor = 5, .after = seconds(20)};
    return options;
  }

  void begin() {
    one_ = h_.join();
    two_ = h_.join();
    start_view();
  }
  void start_view() {
    for (const MemberId member : h_.view_members()) {
      h_.start(member, value(h_.view().committed));
    }
  }
  /// Both members report steps for a while, with these times per microbatch.
  void train(Duration time, float one_ms, float two_ms) {
    for (const Instant end = h_.now + time; h_.now < end;) {
      const std::vector<MemberId> members = h_.view_members();
      ++step_;
      h_.say(members[0], Progress{h_.view().id, Step{step_}, one_ms, 10});
      h_.say(members[1], Progress{h_.view().id, Step{step_}, two_ms, 10});
      h_.pass(milliseconds(100), members);
      if (h_.coordinator.phase() == JobPhase::kStopping) {
        return;
      }
    }
  }
  /// The same, through changes of the view.
  void train_on(Duration time, float one_ms, float two_ms) {
    for (const Instant end = h_.now + time; h_.now < end;) {
      train(end - h_.now, one_ms, two_ms);
      if (h_.coordinator.phase() == JobPhase::kStopping) {
        stop_all();
        start_view();
      }
    }
  }
  void stop_all() {
    const std::vector<MemberId> members = h_.view_members();
    for (const MemberId member : members) {
      h_.stopped(member, step_);
    }
  }
  [[nodiscard]] std::vector<std::uint32_t> counts() const {
    std::vector<std::uint32_t> counts;
    for (const ViewMember& member : h_.view().members) {
      counts.push_back(member.count);
    }
    return counts;
  }

  CoordinatorHarness h_{options()};
  MemberId one_{};
  MemberId two_{};
  std::uint64_t step_ = 0;
};

TEST_F(CoordinatorSpeeds, ASlowMemberGetsLessAtABoundaryAndNobodyGoes) {
  begin();
  train(seconds(10), 10, 30);
  ASSERT_TRUE(h_.noted("rebalance"));
  EXPECT_EQ(h_.coordinator.phase(), JobPhase::kStopping);
  ASSERT_EQ(h_.sent<Stop>(one_).size(), 1U);
  EXPECT_TRUE(h_.sent<Stop>(one_)[0].at_boundary);
  stop_all();
  EXPECT_THAT(h_.view_members(), ElementsAre(one_, two_));
  EXPECT_THAT(counts(), ElementsAre(6, 2));
  start_view();
  const auto done = h_.all<coordinator_effect::RecoveryDone>();
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done.back().recovery.cause, ChangeCause::kRebalance);
  EXPECT_EQ(done.back().recovery.redone_microbatches, 0U);
}

TEST_F(CoordinatorSpeeds, ItGetsItsWorkBackWhenItIsFastAgain) {
  begin();
  train(seconds(10), 10, 30);
  stop_all();
  start_view();
  train(seconds(20), 10, 10);
  stop_all();
  EXPECT_THAT(counts(), ElementsAre(4, 4));
}

TEST_F(CoordinatorSpeeds, EqualSpeedsChangeNothing) {
  begin();
  train(seconds(30), 10, 11);
  EXPECT_FALSE(h_.noted("rebalance"));
  EXPECT_EQ(value(h_.view().id), 1U);
}

TEST_F(CoordinatorSpeeds, StatusShowsTimeAndShare) {
  begin();
  train(seconds(3), 10, 11);
  const auto members = h_.coordinator.members();
  ASSERT_EQ(members.size(), 2U);
  EXPECT_FLOAT_EQ(members[1].microbatch_ms, 11);
  EXPECT_EQ(members[1].microbatches, 4U);
}

TEST_F(CoordinatorSpeeds, AStragglerLeavesAtABoundaryAndASpareTakesItsPlace) {
  begin();
  const MemberId spare = h_.join();
  for (int i = 0; i < 20 && !h_.noted("straggler"); ++i) {
    train(seconds(5), 10, 80);
    if (h_.coordinator.phase() == JobPhase::kStopping) {
      stop_all();
      start_view();
    }
  }
  ASSERT_TRUE(h_.noted("straggler"));
  EXPECT_TRUE(h_.noted("left"));
  EXPECT_THAT(h_.view_members(), ElementsAre(one_, spare));
  ASSERT_FALSE(h_.sent<Dismiss>(two_).empty());
  EXPECT_EQ(h_.sent<Dismiss>(two_)[0].reason, DismissReason::kDrained);
}

TEST_F(CoordinatorSpeeds, APauseOfTheJobIsNotTimeInWhichAMemberIsSlow) {
  begin();
  train_on(seconds(8), 10, 80);
  h_.give(coordinator_event::PauseAsked{true});
  stop_all();
  ASSERT_EQ(h_.coordinator.phase(), JobPhase::kPaused);
  h_.pass(seconds(60), h_.view_members());
  h_.give(coordinator_event::PauseAsked{false});
  start_view();
  train_on(seconds(5), 10, 80);
  EXPECT_FALSE(h_.noted("straggler"));
  train_on(seconds(10), 10, 80);
  EXPECT_TRUE(h_.noted("straggler"));
}

TEST_F(CoordinatorSpeeds, NorIsTheTimeInWhichTheCoordinatorIsSuspended) {
  begin();
  train_on(seconds(8), 10, 80);
  h_.now = h_.now + seconds(60);
  train_on(seconds(5), 10, 80);
  EXPECT_FALSE(h_.noted("straggler"));
}

TEST_F(CoordinatorSpeeds, TheLastButOneStaysIfSoManyAreNeeded) {
  CoordinatorOptions options = CoordinatorSpeeds::options();
  options.min_workers = 2;
  h_.coordinator = Coordinator(options);
  begin();
  for (int i = 0; i < 20; ++i) {
    train(seconds(5), 10, 80);
    if (h_.coordinator.phase() == JobPhase::kStopping) {
      stop_all();
      start_view();
    }
  }
  EXPECT_FALSE(h_.noted("straggler"));
}

}  // namespace
}  // namespace mayfly::elastic
