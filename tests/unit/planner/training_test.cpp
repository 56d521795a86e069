// The training of a simulated job: its beginning, its stops, and the loss of its state.

#include "planner/simulation/training.hpp"

#include <gtest/gtest.h>

#include "tests/unit/planner/invented_market.hpp"

namespace mayfly::planner {
namespace {

using test_support::job_of;
using test_support::kHour;
using test_support::market_of;
using test_support::spot_offer;
using test_support::workers_on;

class TrainingTest : public testing::Test {
 protected:
  TrainingTest() {
    job.first_wait_s = 100;
    job.recovery_s = 10;
    job.join_stop_s = 3;
    job.restore_s = 40;
    training.begin(PathDraws(1, 0));
  }
  void at(double now_s) { training.advance(now_s); }
  void join() {
    training.join(0);
    training.update(false);
  }
  void lose() {
    training.lose(0);
    training.update(false);
  }
  [[nodiscard]] PathOutcome outcome() const {
    PathOutcome reported;
    training.report(reported);
    return reported;
  }

  Market market = market_of({spot_offer(1, LifetimeTable(), 0)});
  JobModel job = job_of(2);
  Training training{market, job, workers_on({0}, 2)};
};

TEST_F(TrainingTest, BeginsWithAllWorkersOrAfterAWait) {
  training.update(false);
  EXPECT_EQ(training.begins_s(), kNever) << "nobody is there";
  at(20);
  join();
  EXPECT_EQ(training.begins_s(), 120);
  EXPECT_EQ(training.finish_s(), kNever);
  at(30);
  join();
  EXPECT_EQ(training.begins_s(), kNever) << "it has begun";
  EXPECT_NEAR(training.finish_s(), 30 + kHour, 1e-9) << "nobody has stopped for the join";
  EXPECT_NEAR(outcome().starting_s, 30, 1e-9);

  training.begin(PathDraws(1, 1));
  at(20);
  join();
  at(120);
  training.update(true);
  EXPECT_NEAR(training.finish_s(), 120 + 2 * kHour, 1e-9);
  EXPECT_NEAR(outcome().starting_s, 120, 1e-9);
  at(130);
  EXPECT_NEAR(outcome().stock_out_s, 5, 1e-9) << "half of the cluster";
}

TEST_F(TrainingTest, StopsForJoinsAndLosses) {
  join();
  join();
  at(1000);
  lose();
  EXPECT_NEAR(training.finish_s(), 1010 + 2 * (kHour - 1000), 1e-6);
  at(2010);
  join();
  EXPECT_NEAR(training.finish_s(), 2013 + kHour - 1500, 1e-6);
  at(2100);
  training.leave(0);
  training.update(false);
  EXPECT_NEAR(training.finish_s(), 2100 + 2 * (kHour - 1587), 1e-6) << "nobody has stopped";
  EXPECT_EQ(outcome().losses, 1U);
  EXPECT_EQ(outcome().all_lost, 0U);
}

TEST_F(TrainingTest, LosesItsStateWithItsLastWorker) {
  join();
  join();
  at(1000);
  lose();
  lose();
  EXPECT_EQ(outcome().losses, 2U);
  EXPECT_EQ(outcome().all_lost, 1U);
  EXPECT_EQ(training.left(), job.work);
  EXPECT_EQ(training.finish_s(), kNever);
  at(2000);
  join();
  EXPECT_NEAR(training.finish_s(), 2040 + 2 * kHour, 1e-6) << "it has to restore";
}

TEST_F(TrainingTest, HasNothingToLoseBeforeItBegins) {
  join();
  at(50);
  lose();
  EXPECT_EQ(outcome().losses, 1U);
  EXPECT_EQ(outcome().all_lost, 0U);
}

}  // namespace
}  // namespace mayfly::planner
