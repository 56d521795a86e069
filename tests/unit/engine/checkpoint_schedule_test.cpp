#include "engine/training/step_reports.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "engine/training/evaluation.hpp"

namespace mayfly::engine {
namespace {

Job job_of_steps(std::uint64_t total, std::uint64_t checkpoint_every, double minutes) {
  Job job;
  job.total_steps = total;
  job.config.checkpoint_every = checkpoint_every;
  job.config.checkpoint_minutes = minutes;
  job.config.digest_every = 5;
  return job;
}

TEST(CheckpointSchedule, TakesEachNamedStepOnceButNotTheFirstAndTheLast) {
  const Job job = job_of_steps(30, 10, 0);
  CheckpointSchedule schedule(job, Step{});
  ViewPart part;
  part.is_reporter = true;
  EXPECT_FALSE(schedule.take(Step{}, part, monotonic_now(), false));
  EXPECT_FALSE(schedule.take(Step{9}, part, monotonic_now(), false));
  EXPECT_TRUE(schedule.take(Step{10}, part, monotonic_now(), false));
  EXPECT_FALSE(schedule.take(Step{10}, part, monotonic_now(), false))
      << "the step is tried again in the next view";
  EXPECT_TRUE(schedule.take(Step{20}, part, monotonic_now(), false));
  EXPECT_FALSE(schedule.take(Step{30}, part, monotonic_now(), false)) << "the job's end writes it";
}

TEST(CheckpointSchedule, WhoFollowsAReporterThatWasLostWritesItInItsPlace) {
  const Job job = job_of_steps(30, 10, 0);
  CheckpointSchedule schedule(job, Step{});
  ViewPart part;
  EXPECT_TRUE(schedule.take(Step{10}, part, monotonic_now(), false));
  part.is_reporter = true;  // the reporter was lost, and the step is tried again
  EXPECT_TRUE(schedule.take(Step{10}, part, monotonic_now(), false));
  EXPECT_FALSE(schedule.take(Step{10}, part, monotonic_now(), false));
}

TEST(CheckpointSchedule, KnowsThatTheStateItBeginsWithIsSaved) {
  const Job job = job_of_steps(30, 10, 0);
  CheckpointSchedule schedule(job, Step{10});
  EXPECT_FALSE(schedule.take(Step{10}, ViewPart{}, monotonic_now(), false));
}

TEST(CheckpointSchedule, ByTimeIsTheReportersDecisionAtAComparedStep) {
  const Job job = job_of_steps(30, 0, 1e-9);  // always due
  CheckpointSchedule schedule(job, Step{});
  ViewPart part;
  EXPECT_FALSE(schedule.take(Step{5}, part, monotonic_now(), false));
  part.is_reporter = true;
  EXPECT_FALSE(schedule.take(Step{6}, part, monotonic_now(), false))
      << "the whole state is not compared there";
  EXPECT_TRUE(schedule.take(Step{10}, part, monotonic_now(), false));
}

TEST(CheckpointSchedule, ByTimeDoesNotWaitForRareDigests) {
  Job job = job_of_steps(1'000'000, 0, 1e-9);
  job.config.digest_every = 100'000;
  CheckpointSchedule schedule(job, Step{});
  ViewPart part;
  part.is_reporter = true;
  EXPECT_FALSE(schedule.take(Step{63}, part, monotonic_now(), false));
  EXPECT_TRUE(schedule.take(Step{64}, part, monotonic_now(), false));
}

TEST(CheckpointSchedule, OfAProcessThatIsToldToGoAndCannotBeSparedIsDueAtOnceAndNowAndThen) {
  const Job job = job_of_steps(300, 0, 0);
  CheckpointSchedule schedule(job, Step{});
  const ViewPart part;
  const Instant told = monotonic_now();
  EXPECT_FALSE(schedule.take(Step{6}, part, told, false));
  EXPECT_FALSE(schedule.take(Step{6}, part, told, true));
  EXPECT_FALSE(schedule.take(Step{99}, part, told + milliseconds(900), true)) << "it may go yet";
  EXPECT_TRUE(schedule.take(Step{100}, part, told + seconds(1), true));
  EXPECT_FALSE(schedule.take(Step{101}, part, told + seconds(5), true));
  EXPECT_TRUE(schedule.take(Step{102}, part, told + seconds(6), true));

  CheckpointSchedule slow(job, Step{});
  EXPECT_FALSE(slow.take(Step{6}, part, told, true));
  EXPECT_FALSE(slow.take(Step{7}, part, told + seconds(60), true)) << "it goes after the next step";
  EXPECT_TRUE(slow.take(Step{8}, part, told + seconds(120), true));
}

TEST(CheckpointSchedule, OfTheLastMemberWithTheStateIsDueSoonAndNowAndThen) {
  const Job job = job_of_steps(300, 0, 5);
  CheckpointSchedule schedule(job, Step{});
  ViewPart part;
  const Instant lost = monotonic_now();
  EXPECT_FALSE(schedule.take(Step{6}, part, lost, false));
  part.is_last_holder = true;
  EXPECT_FALSE(schedule.take(Step{7}, part, lost, false));
  EXPECT_FALSE(schedule.take(Step{8}, part, lost + seconds(1), false)) << "another may join yet";
  EXPECT_TRUE(schedule.take(Step{9}, part, lost + seconds(2), false));
  EXPECT_FALSE(schedule.take(Step{10}, part, lost + seconds(31), false));
  EXPECT_TRUE(schedule.take(Step{11}, part, lost + seconds(32), false));
  part.is_last_holder = false;
  EXPECT_FALSE(schedule.take(Step{12}, part, lost + seconds(90), false));
  part.is_last_holder = true;
  EXPECT_FALSE(schedule.take(Step{13}, part, lost + seconds(91), false)) << "it is alone again";
  EXPECT_TRUE(schedule.take(Step{14}, part, lost + seconds(93), false));
}

TEST(CheckpointSchedule, WithoutTimeTheLastMemberWritesNone) {
  const Job job = job_of_steps(300, 0, 0);
  CheckpointSchedule schedule(job, Step{});
  ViewPart part;
  part.is_last_holder = true;
  const Instant lost = monotonic_now();
  EXPECT_FALSE(schedule.take(Step{7}, part, lost, false));
  EXPECT_FALSE(schedule.take(Step{8}, part, lost + seconds(99), false));
}

elastic::View view_with_observer() {
  elastic::View view;
  view.id = ViewId{7};
  for (std::uint64_t id = 1; id <= 4; ++id) {
    elastic::ViewMember member;
    member.id = MemberId{id};
    if (id == 2) {
      member.observes = ViewId{7};
    }
    view.members.push_back(member);
  }
  return view;
}

TEST(EvaluationChunks, AreDividedAmongThoseThatHaveTheState) {
  const elastic::View view = view_with_observer();
  std::vector<std::uint32_t> all;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    const std::vector<std::uint32_t> own = evaluation_chunks(view, Rank{rank}, 10);
    EXPECT_EQ(own.empty(), rank == 1) << "an observer has nothing to evaluate with";
    all.insert(all.end(), own.begin(), own.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_TRUE(evaluation_chunks(view, Rank{3}, 2).empty()) << "fewer chunks than members";
}

}  // namespace
}  // namespace mayfly::engine
