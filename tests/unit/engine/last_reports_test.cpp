#include "engine/launch/last_reports.hpp"

#include <gtest/gtest.h>

#include "engine/run/job_news.hpp"

namespace mayfly::engine {
namespace {

constexpr Instant kEnd{1'000'000'000};

JobEnd ended(elastic::Outcome outcome) {
  JobEnd end;
  end.outcome = outcome;
  return end;
}

LastReports::News connected() {
  return {.has_members = true};
}

TEST(LastReports, OfAJobThatIsDoneHaveTwentySeconds) {
  LastReports reports(ended(elastic::Outcome::kDone), true, kEnd);
  EXPECT_TRUE(reports.is_time_left(kEnd + seconds(19), connected()));
  EXPECT_FALSE(reports.is_time_left(kEnd + seconds(20), connected()));
}

TEST(LastReports, WaitForTheStateOfAStoppedJob) {
  for (const auto outcome : {elastic::Outcome::kStopped, elastic::Outcome::kTooFewWorkers}) {
    LastReports reports(ended(outcome), true, kEnd);
    for (int s = 0; s < 300; s += 10) {
      EXPECT_TRUE(reports.is_time_left(kEnd + seconds(s), connected()));
    }
    LastReports::News saved = connected();
    saved.is_state_saved = true;
    EXPECT_TRUE(reports.is_time_left(kEnd + seconds(305), saved));
    EXPECT_FALSE(reports.is_time_left(kEnd + seconds(311), saved));
  }
}

TEST(LastReports, WaitForNoStateBeforeTheFirstView) {
  LastReports reports(ended(elastic::Outcome::kStopped), false, kEnd);
  EXPECT_FALSE(reports.is_time_left(kEnd + seconds(20), connected()));
}

TEST(LastReports, WaitForNoStateOfThoseWhoAreGone) {
  LastReports reports(ended(elastic::Outcome::kStopped), true, kEnd);
  EXPECT_FALSE(reports.is_time_left(kEnd + seconds(20), {}));
}

TEST(LastReports, WaitForNoStateWhenTheUserInterruptsAgain) {
  LastReports reports(ended(elastic::Outcome::kStopped), true, kEnd);
  EXPECT_TRUE(reports.is_time_left(kEnd + seconds(15), connected()));
  LastReports::News again = connected();
  again.is_interrupted = true;
  EXPECT_TRUE(reports.is_time_left(kEnd + seconds(34), again));
  EXPECT_FALSE(reports.is_time_left(kEnd + seconds(35), again));
}

TEST(LastReports, DoNotWaitForAStateForEver) {
  LastReports reports(ended(elastic::Outcome::kStopped), true, kEnd);
  for (int s = 0; s < 600; s += 10) {
    EXPECT_TRUE(reports.is_time_left(kEnd + seconds(s), connected()));
  }
  EXPECT_TRUE(reports.is_time_left(kEnd + seconds(609), connected()));
  EXPECT_FALSE(reports.is_time_left(kEnd + seconds(610), connected()));
}

TEST(LastReports, WaitForACheckpointThatIsComingIn) {
  LastReports reports(ended(elastic::Outcome::kDone), true, kEnd);
  LastReports::News receiving = connected();
  receiving.is_receiving = true;
  for (int s = 0; s < 1000; s += 10) {
    EXPECT_TRUE(reports.is_time_left(kEnd + seconds(s), receiving));
  }
}

}  // namespace
}  // namespace mayfly::engine
