#include "elastic/core/job_end.hpp"

#include <gtest/gtest.h>

#include "tests/unit/elastic/membership_fixture.hpp"

namespace mayfly::elastic {
namespace {

/// Members 1 and 2 have stopped; the members in `finished` have reported that the job is over.
Membership stopped(const std::vector<MemberId>& finished) {
  Membership membership = working({k1, k2});
  for (const MemberId id : {k1, k2}) {
    Stopped said = stopped_after(12);
    said.finished = std::find(finished.begin(), finished.end(), id) != finished.end();
    membership.stopped(id, said);
  }
  return membership;
}

TEST(JobEnd, IsOverWhenAllHaveFinished) {
  JobEnd end;
  EXPECT_FALSE(end.decide(stopped({k1}), true));
  const auto ending = end.decide(stopped({k1, k2}), true);
  ASSERT_TRUE(ending);
  EXPECT_EQ(ending->outcome, Outcome::kDone);
  EXPECT_TRUE(ending->with_checkpoint);
}

TEST(JobEnd, TheFirstReasonToStopCounts) {
  JobEnd end;
  EXPECT_FALSE(end.is_requested());
  end.request_stop("time is up");
  end.request_stop("again");
  EXPECT_TRUE(end.is_requested());
  const auto ending = end.decide(stopped({}), true);
  ASSERT_TRUE(ending);
  EXPECT_EQ(ending->outcome, Outcome::kStopped);
  EXPECT_EQ(ending->detail, "time is up");
  EXPECT_FALSE(end.is_finishing());
}

TEST(JobEnd, OthersMayHaveTheLastStepInOneMoreView) {
  JobEnd end;
  end.request_stop("now");
  EXPECT_FALSE(end.decide(stopped({k1}), true));
  EXPECT_TRUE(end.is_finishing());
  EXPECT_TRUE(end.decide(stopped({k1}), true)) << "but in no second one";
  JobEnd lonely;
  lonely.request_stop("now");
  EXPECT_TRUE(lonely.decide(stopped({k1}), false)) << "there is no other view";
}

TEST(JobEnd, APauseIsNewsOnce) {
  JobEnd end;
  EXPECT_TRUE(end.request_pause(true));
  EXPECT_FALSE(end.request_pause(true));
  EXPECT_TRUE(end.is_pause_requested());
  EXPECT_TRUE(end.request_pause(false));
}

TEST(JobEnd, EndsOnceMoreAsTheLogSays) {
  LogContents contents;
  contents.ended = log_record::JobEnded{Outcome::kStopped, "by hand"};
  contents.is_paused = true;
  JobEnd end;
  EXPECT_DEATH((void)end.once_more(stopped({})), "only an ended job");
  end.restore(contents);
  EXPECT_TRUE(end.is_pause_requested());
  const JobEnd::Ending ending = end.once_more(stopped({}));
  EXPECT_EQ(ending.outcome, Outcome::kStopped);
  EXPECT_EQ(ending.detail, "by hand");
  EXPECT_TRUE(ending.with_checkpoint);
}

TEST(JobEnd, TheNewestStateIsWritten) {
  Membership membership = working({k1, k2, k3});
  EXPECT_EQ(holder_of_newest_state(membership), std::nullopt);
  membership.stopped(k1, stopped_after(11));
  membership.stopped(k2, stopped_after(12));
  membership.stopped(k3, stopped_after(12));
  EXPECT_EQ(holder_of_newest_state(membership), k2);
}

TEST(JobEnd, FirstWeightsAreNoStateOfAJobThatHasTrained) {
  Membership membership(CoordinatorOptions{});
  add_ready(membership, k1);
  EXPECT_EQ(holder_of_newest_state(membership), k1) << "nothing is lost yet";
  membership.raise_committed(Step{10});
  EXPECT_EQ(holder_of_newest_state(membership), std::nullopt);
  add_ready(membership, k2, 3);
  EXPECT_EQ(holder_of_newest_state(membership), k2);
}

TEST(JobEnd, NorIsTheStateThatTheJobIsResumedFrom) {
  CoordinatorOptions options;
  options.first_step = Step{8};
  Membership membership(options);
  add_ready(membership, k1, 8);
  EXPECT_EQ(holder_of_newest_state(membership), k1) << "nothing is lost yet";
  membership.raise_committed(Step{10});
  EXPECT_EQ(holder_of_newest_state(membership), std::nullopt);
  add_ready(membership, k2, 9);
  EXPECT_EQ(holder_of_newest_state(membership), k2);
}

TEST(JobEnd, NorAreTheyWhenNobodyOfTheViewOnTheLogSaysHowFarItCame) {
  Membership membership(CoordinatorOptions{});
  membership.restore(view_with(1, 0, {k1}));
  add_ready(membership, k2);
  EXPECT_EQ(holder_of_newest_state(membership), std::nullopt);
}

CoordinatorOptions needs(std::uint32_t least, std::uint32_t initial) {
  CoordinatorOptions options;
  options.min_workers = least;
  options.initial_workers = initial;
  return options;
}

TEST(WorkerQuota, TheFirstViewWaitsForAllOfThem) {
  const WorkerQuota quota(needs(1, 3));
  Membership membership(CoordinatorOptions{});
  add_ready(membership, k1);
  add_ready(membership, k2);
  EXPECT_EQ(quota.lack(membership, kSoon), "2 of 3 workers are ready");
  add_ready(membership, k3);
  EXPECT_FALSE(quota.lack(membership, kSoon));
  EXPECT_FALSE(quota.lack(stopped({}), kSoon)) << "later ones do not";
  EXPECT_EQ(WorkerQuota(needs(3, 3)).lack(stopped({}), kSoon), "2 of 3 workers are ready");
}

TEST(WorkerQuota, ServersDoNotCount) {
  CoordinatorOptions options = needs(2, 2);
  options.counts_as_worker = [](const std::string& address) { return address == "worker"; };
  const WorkerQuota quota(options);
  Membership membership(options);
  add_ready(membership, k1, 0, "worker");
  EXPECT_EQ(quota.lack(membership, kSoon), "1 of 2 members are ready");
  add_ready(membership, k2, 0, "server");
  EXPECT_EQ(quota.lack(membership, kSoon), "1 of 2 workers are ready");
  add_ready(membership, k3, 0, "worker");
  EXPECT_FALSE(quota.lack(membership, kSoon));
}

TEST(WorkerQuota, TheFirstViewWaitsForTheServersHoweverManyWorkersThereAre) {
  CoordinatorOptions options = needs(1, 2);
  options.initial_servers = 1;
  options.counts_as_worker = [](const std::string& address) { return address == "worker"; };
  options.counts_as_server = [](const std::string& address) { return address == "server"; };
  WorkerQuota quota(options);
  Membership membership(options);
  add_ready(membership, k1, 0, "worker");
  add_ready(membership, k2, 0, "worker");
  EXPECT_EQ(quota.lack(membership, kSoon), "0 of 1 parameter servers are ready");
  quota.wait(membership, kSoon);
  EXPECT_FALSE(quota.lack(membership, kSoon + options.min_workers_timeout))
      << "its workers say what is missing";
  add_ready(membership, k3, 0, "server");
  EXPECT_FALSE(quota.lack(membership, kSoon));
}

TEST(WorkerQuota, TheWaitingEndsInTime) {
  const CoordinatorOptions options = needs(1, 3);
  WorkerQuota quota(options);
  Membership membership(options);
  quota.wait(membership, kSoon);
  EXPECT_FALSE(quota.is_hopeless(kSoon + options.min_workers_timeout)) << "nobody has come yet";
  add_ready(membership, k1);
  quota.wait(membership, kSoon);
  quota.wait(membership, kLater);
  EXPECT_FALSE(quota.is_hopeless(kSoon + options.min_workers_timeout - milliseconds(1)));
  EXPECT_TRUE(quota.is_hopeless(kSoon + options.min_workers_timeout));
  EXPECT_FALSE(quota.lack(membership, kSoon + options.min_workers_timeout))
      << "the job begins with those that are there";
  quota.extend_deadlines(seconds(5), kSoon + seconds(5));
  EXPECT_FALSE(quota.is_hopeless(kSoon + options.min_workers_timeout));
  quota.met();
  EXPECT_FALSE(quota.is_hopeless(kSoon + 2 * options.min_workers_timeout));
}

}  // namespace
}  // namespace mayfly::elastic
