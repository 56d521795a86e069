#include "elastic/core/membership.hpp"

#include <gtest/gtest.h>

#include <map>

#include "tests/unit/elastic/membership_fixture.hpp"

namespace mayfly::elastic {
namespace {

using Phase = Peer::Phase;

TEST(Membership, TakesAWorkerFromLoadingToWorkAndOut) {
  Membership membership{CoordinatorOptions{}};
  membership.connect(k1, hello_from("a:1"), kSoon);
  EXPECT_EQ(membership.at(k1).phase(), Phase::kLoading);
  membership.become_ready(k1, Ready{Step{3}, 1000}, kSoon);
  EXPECT_EQ(membership.at(k1).phase(), Phase::kReady);
  EXPECT_EQ(membership.committed(), Step{}) << "what a joiner brings is not committed here";

  Outbox outbox;
  EXPECT_EQ(membership.enter(view_with(1, 3, {k1}), kSoon, outbox), std::nullopt);
  EXPECT_TRUE(membership.is_active_in(k1, ViewId{1}));
  EXPECT_FALSE(membership.is_active_in(k1, ViewId{2}));
  membership.stopped(k1, stopped_after(7));
  EXPECT_EQ(membership.at(k1).phase(), Phase::kStopped);
  EXPECT_EQ(membership.committed(), Step{7});

  membership.dismiss(k1);
  EXPECT_TRUE(membership.candidates().empty());
  membership.remove(k1);
  EXPECT_EQ(membership.find(k1), nullptr);
}

/// A membership stores its counts, because counting 10,000 members for each message would take
/// seconds. This compares them with the members.
void expect_right_counts(const Membership& membership) {
  std::map<Phase, std::size_t> counted;
  bool leaves = false;
  for (const auto& [id, peer] : membership.peers()) {
    ++counted[peer.phase()];
    leaves = leaves || (peer.is_leaving() && peer.phase() != Phase::kDismissed);
  }
  for (std::size_t phase = 0; phase < Peer::kPhases; ++phase) {
    EXPECT_EQ(membership.count(static_cast<Phase>(phase)), counted[static_cast<Phase>(phase)])
        << phase;
  }
  EXPECT_EQ(membership.has_leavers(), leaves);
}

TEST(Membership, CountsItsMembersByPhase) {
  Membership membership = working({k1, k2, k3});
  expect_right_counts(membership);
  membership.stopped(k1, stopped_after(10));
  membership.wants_to_leave(k1, "notice");
  membership.wants_to_leave(k1, "again");
  expect_right_counts(membership);
  EXPECT_TRUE(membership.has_leavers());
  membership.dismiss(k1);
  expect_right_counts(membership);
  membership.ask_all_again();
  expect_right_counts(membership);
  Resume told;
  told.phase = ResumePhase::kLoading;
  told.is_leaving = true;
  membership.resumed(k2, told);
  EXPECT_TRUE(membership.place(k2, kSoon));
  told.phase = ResumePhase::kReady;
  told.is_leaving = false;
  membership.resumed(k3, told);
  EXPECT_TRUE(membership.place(k3, kSoon));
  expect_right_counts(membership);
  for (const MemberId id : {k1, k2}) {
    membership.remove(id);
    expect_right_counts(membership);
  }
  membership.take_back(k2, Hello{}, false);
  expect_right_counts(membership);
  EXPECT_EQ(membership.count(Phase::kReturning), 1u);
  EXPECT_FALSE(membership.has_leavers());
}

TEST(Membership, ReadyMeansNothingFromOneThatWorks) {
  Membership membership = working({k1});
  membership.become_ready(k1, Ready{Step{99}, 1}, kSoon);
  EXPECT_EQ(membership.at(k1).phase(), Phase::kActive);
  EXPECT_EQ(membership.at(k1).committed, Step{10});
}

TEST(Membership, FindsTheLastActiveMemberInAnyOrder) {
  Membership membership = working({k1, k2, k3});
  for (const MemberId id : {k2, k1, k3}) {
    EXPECT_TRUE(membership.is_anyone_active());
    membership.stopped(id, stopped_after(10));
  }
  EXPECT_FALSE(membership.is_anyone_active());
}

TEST(Membership, SparesTakeOnlyTheRoomThatMembersLeave) {
  CoordinatorOptions options;
  options.view_max = 2;
  Membership membership = working({k1}, options);
  membership.stopped(k1, stopped_after(10));
  add_ready(membership, k2);
  add_ready(membership, k3);
  const Candidates next = membership.next_members({});
  ASSERT_EQ(next.size(), 2u);
  EXPECT_EQ(next[0].first, k1);
  EXPECT_EQ(next[1].first, k2);
  membership.wants_to_leave(k1, "notice");
  EXPECT_EQ(membership.next_members({}).size(), 3u) << "one on its way out needs no place";
}

TEST(Membership, SparesWhoseConsentIsNeededComeFirstEvenIfThereIsNoRoom) {
  CoordinatorOptions options;
  options.view_max = 2;
  Membership membership = working({k1}, options);
  membership.stopped(k1, stopped_after(10));
  for (const MemberId ready : {k2, k3, k4}) {
    add_ready(membership, ready);
  }
  const auto ids_with = [&membership](const std::set<MemberId>& voters) {
    std::vector<MemberId> ids;
    for (const auto& candidate : membership.next_members(voters)) {
      ids.push_back(candidate.first);
    }
    return ids;
  };
  EXPECT_EQ(ids_with({k1, k4}), (std::vector<MemberId>{k1, k4}));
  EXPECT_EQ(ids_with({k3, k4}), (std::vector<MemberId>{k1, k3, k4}));
}

TEST(Membership, TheOnlyHolderOfTheLastStepStays) {
  Membership membership = working({k1, k2});
  membership.stopped(k1, stopped_after(11));
  membership.stopped(k2, stopped_after(10));
  EXPECT_FALSE(membership.may_leave(k1, false));
  EXPECT_TRUE(membership.may_leave(k2, false));
}

TEST(Membership, ServersDoNotCountAsSomebodyWhoWorks) {
  CoordinatorOptions options;
  options.counts_as_worker = [](const std::string& address) { return address == "worker"; };
  Membership membership(options);
  add_ready(membership, k1, 0, "worker");
  add_ready(membership, k2, 0, "server");
  EXPECT_FALSE(leaves_somebody(membership.peers(), k1));
  EXPECT_TRUE(another_member_works(membership.peers(), k2));
}

TEST(Membership, EverybodyHasStartedOnceEachHasGroupAndState) {
  Membership membership = working({k1, k2});
  membership.formed(k1);
  membership.formed(k1);
  membership.synced(k1, kSoon);
  membership.formed(k2);
  EXPECT_FALSE(membership.all_have_started());
  membership.synced(k2, kSoon);
  EXPECT_TRUE(membership.all_have_started());
}

TEST(Membership, AJoinIsToldOnceWithTheFirstCommit) {
  Membership membership = working({k1});
  membership.stopped(k1, stopped_after(12));
  add_ready(membership, k2);
  Outbox outbox;
  (void)membership.enter(view_with(2, 12, {k1, k2}), kLater, outbox);
  EXPECT_EQ(outbox.take().size(), 1u) << "k2 has joined";
  const std::vector<Join> joins = membership.take_joins(kLater + seconds(1));
  ASSERT_EQ(joins.size(), 1u);
  EXPECT_EQ(joins[0].member, k2);
  EXPECT_EQ(joins[0].admitted_after, Step{12});
  EXPECT_EQ(joins[0].admitted, kLater);
  EXPECT_EQ(joins[0].caught_up, kLater);
  EXPECT_TRUE(membership.take_joins(kLater).empty());
}

/// The member joins a second time, in a later view, and the record of that join is kept until then.
TEST(Membership, ACommitOfItsFormerViewDoesNotCompleteTheJoinOfAMemberThatJoinsAgain) {
  Membership membership = working({k1});
  membership.stopped(k1, stopped_after(12));
  add_ready(membership, k2);
  Outbox outbox;
  (void)membership.enter(view_with(2, 12, {k1, k2}), kSoon, outbox);
  membership.remove(k2);
  Hello again;
  again.joins_again = true;
  membership.take_back(k2, again, true);
  membership.resumed(k2, Resume{});
  ASSERT_TRUE(membership.place(k2, kLater));
  EXPECT_TRUE(membership.take_joins(kLater).empty());
  EXPECT_TRUE(membership.at(k2).join) << "it is loading, and ready later";
}

TEST(Membership, AnObserverIsNewsOnlyOnce) {
  Membership membership(CoordinatorOptions{});
  add_ready(membership, k1, 10);
  add_ready(membership, k2);
  View view = view_with(1, 10, {k1, k2});
  view.members[1].observes = ViewId{1};
  Outbox outbox;
  (void)membership.enter(view, kSoon, outbox);
  EXPECT_TRUE(membership.at(k2).lacks_state());
  EXPECT_EQ(membership.at(k2).donors, std::vector<MemberId>{k1});
  EXPECT_FALSE(membership.caught_up(k1, kSoon)) << "it works";
  EXPECT_TRUE(membership.caught_up(k2, kSoon));
  EXPECT_FALSE(membership.caught_up(k2, kSoon));
}

TEST(Membership, AFalseClaimIsForgottenWithItsMember) {
  Membership membership = working({k1, k2});
  membership.progressed(k1, Progress{ViewId{1}, Step{11}, 0, 0}, kSoon);
  membership.progressed(k2, Progress{ViewId{1}, Step{90}, 0, 0}, kSoon);
  EXPECT_EQ(membership.committed(), Step{90});
  membership.remove(k2);
  membership.forget_claims();
  EXPECT_EQ(membership.committed(), Step{11});
}

TEST(Membership, RemembersTheHighestStepThatWasUndone) {
  Membership membership = working({k1, k2});
  membership.stopped(k1, stopped_after(14));
  membership.go_back_to(Step{10});
  EXPECT_EQ(membership.committed(), Step{10});
  EXPECT_EQ(membership.undone(), Step{14});
}

TEST(Membership, FencesUntilTheNextView) {
  Membership membership = working({k1});
  membership.fence(k2);
  EXPECT_TRUE(membership.is_fenced(k2));
  membership.stopped(k1, stopped_after(10));
  Outbox outbox;
  (void)membership.enter(view_with(2, 10, {k1}), kLater, outbox);
  EXPECT_FALSE(membership.is_fenced(k2));
}

// A coordinator that takes over asks all members, and each report determines the member's phase.
TEST(Membership, ReportsGiveReturningMembersTheirPlaces) {
  Membership membership = working({k1, k2});
  membership.connect(k3, hello_from(""), kSoon);
  membership.ask_all_again();
  EXPECT_EQ(membership.missing(), (std::vector<MemberId>{k1, k2}));

  Resume runs;
  runs.phase = ResumePhase::kRunning;
  runs.view = membership.view();
  membership.resumed(k1, runs);
  Resume has_left = runs;
  has_left.phase = ResumePhase::kStopped;
  has_left.last = stopped_after(12);
  has_left.committed = Step{12};
  membership.resumed(k2, has_left);
  membership.resumed(k3, Resume{});
  EXPECT_TRUE(membership.missing().empty());

  for (const MemberId id : {k1, k2, k3}) {
    EXPECT_TRUE(membership.place(id, kLater));
  }
  EXPECT_EQ(membership.at(k1).phase(), Phase::kActive);
  EXPECT_EQ(membership.at(k2).phase(), Phase::kStopped);
  EXPECT_EQ(membership.at(k3).phase(), Phase::kLoading);
}

TEST(Membership, WhoWorksInAViewThatIsOverHasNoPlace) {
  Membership membership = working({k1});
  membership.take_back(k2, hello_from(""), false);
  Resume runs;
  runs.phase = ResumePhase::kRunning;
  runs.view = view_with(9, 5, {k2});
  membership.resumed(k2, runs);
  EXPECT_FALSE(membership.place(k2, kLater));
}

TEST(MembershipDeathTest, NobodyIsDismissedTwiceOrComesUnderAUsedId) {
  Membership membership = working({k1});
  EXPECT_DEATH(membership.connect(k1, hello_from(""), kSoon), "never reused");
  membership.dismiss(k1);
  EXPECT_DEATH(membership.dismiss(k1), "dismissed once");
  EXPECT_DEATH(membership.formed(k1), "only active members");
}

}  // namespace
}  // namespace mayfly::elastic
