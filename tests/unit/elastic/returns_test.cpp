#include "elastic/core/admission.hpp"

#include <gtest/gtest.h>

#include "tests/unit/elastic/membership_fixture.hpp"

namespace mayfly::elastic {
namespace {

Resume running(std::uint64_t view, std::uint64_t committed) {
  Resume resume;
  resume.incarnation = Incarnation{1};
  resume.phase = ResumePhase::kRunning;
  resume.view = view_with(view, committed, {k1, k2});
  resume.committed = Step{committed};
  return resume;
}

Resume left(std::uint64_t view, std::uint64_t committed) {
  Resume resume = running(view, committed);
  resume.phase = ResumePhase::kStopped;
  resume.last = stopped_after(committed, view);
  return resume;
}

TEST(Returns, MustTellOfItsViewAndItsEnd) {
  EXPECT_TRUE(makes_sense(k1, Resume{}));
  EXPECT_TRUE(makes_sense(k1, running(1, 10)));
  EXPECT_TRUE(makes_sense(k1, left(1, 10)));
  EXPECT_FALSE(makes_sense(k3, running(1, 10))) << "it is not in that view";

  Resume without_view = running(1, 10);
  without_view.view.reset();
  EXPECT_FALSE(makes_sense(k1, without_view));
  Resume without_end = left(1, 10);
  without_end.last.reset();
  EXPECT_FALSE(makes_sense(k1, without_end));
  Resume of_another_view = left(1, 10);
  of_another_view.last->view = ViewId{2};
  EXPECT_FALSE(makes_sense(k1, of_another_view));
  Resume from_the_future = running(kIdsPerIncarnation + 1, 10);
  EXPECT_FALSE(makes_sense(k1, from_the_future));
  EXPECT_TRUE(makes_sense(k1, running(kIdsPerIncarnation / 2, 10)));
  EXPECT_FALSE(makes_sense(k1, running(kIdsPerIncarnation, 10)));
}

TEST(Returns, NamesOnlyIdsOfItsIncarnations) {
  Hello hello;
  hello.member = k1;
  hello.incarnation = Incarnation{1};
  hello.view = ViewId{kIdsPerIncarnation / 2};
  EXPECT_TRUE(is_impossible(hello)) << "a member has a job";
  hello.job = 7;
  EXPECT_FALSE(is_impossible(hello));
  hello.view = ViewId{kIdsPerIncarnation};
  EXPECT_TRUE(is_impossible(hello))
      << "a coordinator that went on behind it would have no ids left";
  hello.view = ViewId{kIdsPerIncarnation + 1};
  EXPECT_TRUE(is_impossible(hello));
  hello.view = ViewId{};
  hello.incarnation = Incarnation{~std::uint64_t{0}};
  EXPECT_TRUE(is_impossible(hello));
}

TEST(Returns, GrowsWithWhatItsMemberSays) {
  Resume report = running(1, 10);
  EXPECT_EQ(amend(report, Progress{ViewId{1}, Step{11}, 2.0f, 1}), Step{11});
  EXPECT_EQ(report.committed, Step{11});
  EXPECT_TRUE(report.is_active);
  EXPECT_EQ(report.microbatch_ms, 2.0f);
  EXPECT_EQ(amend(report, Progress{ViewId{2}, Step{99}, 0, 1}), std::nullopt) << "another view";
  EXPECT_EQ(amend(report, LeaveRequest{"notice"}), std::nullopt);
  EXPECT_TRUE(report.is_leaving);
  EXPECT_EQ(amend(report, CaughtUp{ViewId{1}, Step{11}}), std::nullopt);
  EXPECT_TRUE(report.has_caught_up);
  EXPECT_EQ(amend(report, stopped_after(12)), Step{12});
  EXPECT_EQ(report.phase, ResumePhase::kStopped);
  EXPECT_EQ(report.committed, Step{12});
}

TEST(Returns, OneThatLoadsBecomesReady) {
  Resume report;
  EXPECT_EQ(amend(report, Ready{Step{4}, 1000}), std::nullopt);
  EXPECT_EQ(report.phase, ResumePhase::kReady);
  EXPECT_EQ(report.committed, Step{4});
  EXPECT_FALSE(has_part(report));
}

TEST(Returns, TheNewestStateIsTheOneThatNobodyExceeds) {
  PeerTable table;
  const Peers& peers = table.all();
  EXPECT_TRUE(holds_newest_state(k1, left(1, 10), peers, ViewId{2}));
  Peer& other = table.add(k3, Peer::Phase::kStopped);
  other.committed = Step{10};
  other.stopped.view = ViewId{1};
  EXPECT_TRUE(holds_newest_state(k1, left(1, 10), peers, ViewId{2})) << "equal, of the same view";
  other.stopped.view = ViewId{2};
  EXPECT_FALSE(holds_newest_state(k1, left(1, 10), peers, ViewId{2})) << "other bits, later view";
  EXPECT_TRUE(holds_newest_state(k1, left(1, 11), peers, ViewId{2}));
  table.enter_phase(other, Peer::Phase::kActive);
  EXPECT_FALSE(holds_newest_state(k1, left(1, 11), peers, ViewId{2})) << "it may get further";

  Resume unsound = left(1, 10);
  unsound.last->dispute = Dispute::kState;
  EXPECT_FALSE(holds_newest_state(k1, unsound, {}, ViewId{2}));
}

TEST(ReturnWatch, IsDueWhenEverybodyIsBackOrTheOthersAreLate) {
  const CoordinatorOptions options;
  Membership membership(options);
  membership.adopt(view_with(1, 10, {k1, k2}));
  ReturnWatch watch(options);
  EXPECT_DEATH((void)watch.is_due(membership, false, kSoon), "from begin");
  watch.begin(kSoon);
  EXPECT_FALSE(watch.is_due(membership, false, kSoon + options.resume_timeout));
  EXPECT_TRUE(watch.is_due(membership, true, kSoon + options.resume_timeout)) << "in haste";
  EXPECT_TRUE(watch.is_due(membership, false, kSoon + options.abandon_timeout));
  for (const MemberId id : {k1, k2}) {
    EXPECT_FALSE(watch.is_due(membership, false, kSoon));
    membership.take_back(id, hello_from(""), false);
    membership.resumed(id, running(1, 10));
    watch.on_report(kSoon);
  }
  EXPECT_TRUE(watch.is_due(membership, false, kSoon));
  EXPECT_TRUE(all_run_on(membership));
  membership.remove(k2);
  EXPECT_EQ(watch.first_return(), kSoon);
  EXPECT_FALSE(all_run_on(membership));
  EXPECT_FALSE(watch.is_due(membership, false, kSoon + options.resume_timeout - milliseconds(1)));
  EXPECT_TRUE(watch.is_due(membership, false, kSoon + options.resume_timeout));
  watch.extend_deadlines(seconds(1), kSoon + seconds(1));
  EXPECT_FALSE(watch.is_due(membership, false, kSoon + options.resume_timeout));
}

TEST(ReturnWatch, WithAQuorumNobodyIsGivenUp) {
  CoordinatorOptions options;
  options.quorum = true;
  Membership membership(options);
  membership.adopt(view_with(1, 10, {k1}));
  ReturnWatch watch(options);
  watch.begin(kSoon);
  EXPECT_FALSE(watch.is_due(membership, true, kSoon + options.abandon_timeout));
  EXPECT_TRUE(watch.is_over(membership, kSoon + options.resume_timeout)) << "if the job has ended";
}

TEST(Returns, OnlyThoseThatHaveFinishedMayBeAllThatIsLeft) {
  Membership membership{CoordinatorOptions{}};
  membership.adopt(view_with(1, 10, {k1, k2}));
  EXPECT_FALSE(only_finished_returned(membership));
  Resume finished = left(1, 12);
  finished.last->finished = true;
  membership.take_back(k1, hello_from(""), false);
  membership.resumed(k1, finished);
  EXPECT_TRUE(only_finished_returned(membership));
  membership.take_back(k2, hello_from(""), false);
  membership.resumed(k2, running(1, 12));
  EXPECT_FALSE(only_finished_returned(membership));
}

}  // namespace
}  // namespace mayfly::elastic
