#include <gtest/gtest.h>

#include "elastic/core/coordinator.hpp"
#include "tests/unit/elastic/resume_fixture.hpp"

// A coordinator died after it had recorded the job's end and before it had told all members. The
// next coordinator with its log tells the members that return, and ends the job once more.

namespace mayfly::elastic {
namespace {

CoordinatorHarness ended(Outcome outcome, const std::optional<View>& view, bool quorum = false) {
  CoordinatorOptions options;
  options.identity = 9;
  options.quorum = quorum;
  LogContents contents = log_with(view.value_or(View{}));
  contents.view = view;
  contents.ended = log_record::JobEnded{outcome, "so it was"};
  return {options, contents};
}

Resume finished_in(const CoordinatorHarness& job, const View& view, std::uint64_t committed) {
  Resume resume = stopped_in(job, view, committed);
  resume.last->finished = true;
  return resume;
}

void expect_end(const CoordinatorHarness& job, Outcome outcome) {
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kEnded);
  ASSERT_EQ(job.all<coordinator_effect::JobEnded>().size(), 1u);
  EXPECT_EQ(job.outcome(), outcome);
  EXPECT_EQ(job.all<coordinator_effect::JobEnded>()[0].detail, "so it was");
}

TEST(CoordinatorEnd, WhoComesBackIsToldThatTheJobIsDone) {
  const View view = old_view(5, 2);
  CoordinatorHarness job = ended(Outcome::kDone, view);
  for (const MemberId member : {k1, k2}) {
    EXPECT_EQ(job.outcome(), std::nullopt);
    ASSERT_TRUE(come_back(job, member, 5));
    job.say(member, finished_in(job, view, 40));
  }
  expect_end(job, Outcome::kDone);
  for (const MemberId member : {k1, k2}) {
    ASSERT_EQ(job.sent<Dismiss>(member).size(), 1u);
    EXPECT_EQ(job.sent<Dismiss>(member)[0].reason, DismissReason::kJobDone);
  }
  EXPECT_TRUE(job.sent<Dismiss>(k1)[0].write_checkpoint !=
              job.sent<Dismiss>(k2)[0].write_checkpoint)
      << "one of them writes the last checkpoint";
}

TEST(CoordinatorEnd, IsNotKeptWaitingByMembersThatWereTold) {
  const View view = old_view(5, 3);
  CoordinatorHarness job = ended(Outcome::kDone, view);
  job.pass(milliseconds(1900), {});
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kResuming);
  EXPECT_EQ(job.outcome(), std::nullopt);
  job.pass(milliseconds(200), {});
  expect_end(job, Outcome::kDone);
  EXPECT_TRUE(job.all<coordinator_effect::ViewPublished>().empty());
}

TEST(CoordinatorEnd, WaitsForTheOthersOnceOneHasComeBack) {
  const View view = old_view(5, 2);
  CoordinatorHarness job = ended(Outcome::kDone, view);
  job.pass(milliseconds(1500), {});
  ASSERT_TRUE(come_back(job, k2, 5));
  job.say(k2, finished_in(job, view, 40));
  job.pass(milliseconds(1500), {k2});
  EXPECT_EQ(job.outcome(), std::nullopt);
  job.pass(milliseconds(600), {k2});
  expect_end(job, Outcome::kDone);
  EXPECT_EQ(job.sent<Dismiss>(k2).size(), 1u);
  EXPECT_FALSE(come_back(job, k1, 5)) << "too late: it is refused for good, as the job has ended";
  EXPECT_EQ(job.all<coordinator_effect::Refuse>().back().refusal, Refusal::kFinal);
}

TEST(CoordinatorEnd, OfAStoppedJobMembersWriteTheCheckpointThatTheyWouldHave) {
  const View view = old_view(5, 2);
  CoordinatorHarness job = ended(Outcome::kStopped, view);
  return_stopped(job, k1, view, 13);
  return_stopped(job, k2, view, 12);
  expect_end(job, Outcome::kStopped);
  ASSERT_EQ(job.sent<Dismiss>(k1).size(), 1u);
  EXPECT_EQ(job.sent<Dismiss>(k1)[0].reason, DismissReason::kJobStopped);
  EXPECT_TRUE(job.sent<Dismiss>(k1)[0].write_checkpoint);
  EXPECT_FALSE(job.sent<Dismiss>(k2)[0].write_checkpoint);
}

TEST(CoordinatorEnd, OfAFailedJobMembersThatStillRunAreTold) {
  const View view = old_view(5, 2);
  CoordinatorHarness job = ended(Outcome::kFailed, view);
  return_running(job, k1, view);
  return_running(job, k2, view);
  expect_end(job, Outcome::kFailed);
  EXPECT_EQ(job.sent<Dismiss>(k1)[0].reason, DismissReason::kJobFailed);
  EXPECT_FALSE(job.sent<Dismiss>(k1)[0].write_checkpoint);
}

TEST(CoordinatorEnd, NeedsNoViewAndNoMajority) {
  CoordinatorHarness without_view = ended(Outcome::kStopped, std::nullopt);
  without_view.pass(seconds(3), {});
  expect_end(without_view, Outcome::kStopped);

  CoordinatorHarness of_three = ended(Outcome::kDone, old_view(5, 3), true);
  of_three.pass(seconds(3), {});
  expect_end(of_three, Outcome::kDone);
}

TEST(CoordinatorEnd, StaysWhatItWas) {
  CoordinatorHarness job = ended(Outcome::kDone, old_view(5, 2));
  job.give(coordinator_event::FailAsked{"a report that was repeated"});
  job.give(coordinator_event::StopAsked{"a signal"});
  job.give(coordinator_event::WorkerConnected{++job.connections, Hello{}});
  EXPECT_TRUE(job.all<coordinator_effect::Accept>().empty()) << "nobody new is taken in";
  EXPECT_EQ(job.all<coordinator_effect::Refuse>().back().reason, "the job has ended");
  job.pass(seconds(3), {});
  expect_end(job, Outcome::kDone);
}

TEST(CoordinatorEnd, IsNotThatOfMembersWhoObeyAnotherCoordinator) {
  CoordinatorHarness job = ended(Outcome::kTooFewWorkers, old_view(5, 3), true);
  EXPECT_FALSE(come_back(job, k1, 5, 7)) << "the job has gone on elsewhere";
  EXPECT_EQ(job.all<coordinator_effect::Refuse>().back().refusal, Refusal::kElsewhere);
  job.pass(seconds(3), {});
  expect_end(job, Outcome::kTooFewWorkers);
  EXPECT_TRUE(job.sent<Dismiss>(k1).empty());
}

}  // namespace
}  // namespace mayfly::elastic
