#include "elastic/core/quorum.hpp"

#include <gtest/gtest.h>

#include "tests/unit/elastic/membership_fixture.hpp"

namespace mayfly::elastic {
namespace {

CoordinatorOptions with_quorum() {
  CoordinatorOptions options;
  options.quorum = true;
  return options;
}

/// Members 1 to 3 worked in view 1. Those in `here` have stopped after step `committed`; the other
/// members have been removed.
Membership stopped(const std::vector<MemberId>& here, std::uint64_t committed,
                   bool contributed = true) {
  Membership membership = working({k1, k2, k3});
  for (const MemberId id : {k1, k2, k3}) {
    if (std::find(here.begin(), here.end(), id) == here.end()) {
      membership.remove(id);
      continue;
    }
    Stopped said = stopped_after(committed);
    said.contributed = contributed;
    membership.stopped(id, said);
  }
  return membership;
}

TEST(Quorum, MostOfTheLastViewMustBeHere) {
  const Quorum quorum(with_quorum());
  EXPECT_FALSE(quorum.lack(stopped({k1, k2}, 10)));
  EXPECT_EQ(quorum.lack(stopped({k2}, 10)),
            "1 of the 3 members of view 1 are here; a majority is needed");
  EXPECT_FALSE(Quorum(CoordinatorOptions{}).lack(stopped({k2}, 10))) << "no standbys, no quorum";
}

TEST(Quorum, TheDeadConsentButAreNotLeanedOn) {
  Quorum quorum(with_quorum());
  const Membership membership = stopped({k2}, 10);
  quorum.is_gone(k3, membership);
  EXPECT_FALSE(quorum.lack(membership));
  EXPECT_FALSE(quorum.can_spare(k2, membership));
  EXPECT_TRUE(quorum.can_spare(k3, stopped({k1, k2, k3}, 10)));
  quorum.incarnation_began();
  EXPECT_TRUE(quorum.lack(membership)) << "they obeyed an incarnation that is over";
}

TEST(Quorum, AMemberOfNoViewDoesNotCount) {
  Quorum quorum(with_quorum());
  const Membership membership = stopped({k2}, 10);
  quorum.is_gone(MemberId{9}, membership);
  EXPECT_TRUE(quorum.lack(membership));
}

TEST(Quorum, TheLastActiveViewIsTheBaseOfTheNext) {
  Quorum quorum(with_quorum());
  Membership membership = stopped({k1, k2}, 10);
  EXPECT_EQ(quorum.bases(membership).size(), 1u);
  EXPECT_EQ(quorum.bases(membership)[0].id, ViewId{1});
  View second = view_with(2, 10, {k1, k2});
  second.bases = quorum.bases(membership);
  Outbox outbox;
  (void)membership.enter(second, kSoon, outbox);
  for (const MemberId id : {k1, k2}) {
    Stopped said = stopped_after(10, 2);
    said.contributed = true;
    membership.stopped(id, said);
  }
  EXPECT_EQ(quorum.bases(membership).size(), 2u) << "view 2 may have committed a step";
  quorum.committed(k1, ViewId{2}, Step{11}, membership);
  ASSERT_EQ(quorum.bases(membership).size(), 1u) << "now it has";
  EXPECT_EQ(quorum.bases(membership)[0].id, ViewId{2});
  quorum.view_changed();
  EXPECT_EQ(quorum.bases(membership).size(), 2u);
}

TEST(Quorum, AViewWithoutSomebodysPartIsNoBase) {
  Membership membership = stopped({k1, k2}, 10);
  Quorum quorum(with_quorum());
  View second = view_with(2, 10, {k1, k2});
  second.bases = quorum.bases(membership);
  Outbox outbox;
  (void)membership.enter(second, kSoon, outbox);
  Stopped said = stopped_after(10, 2);
  said.contributed = false;
  membership.stopped(k1, said);
  EXPECT_EQ(quorum.bases(membership).size(), 1u);
}

/// Members 1 and 2 have stopped in view 100; so many views with other members are in doubt before
/// it.
Membership after_views_in_doubt(std::size_t count) {
  Membership membership = stopped({k1, k2}, 10);
  View last = view_with(100, 10, {k1, k2});
  for (std::size_t i = 0; i < count; ++i) {
    last.bases.push_back({ViewId{1 + i}, {k1, k2, MemberId{10 + i}}});
  }
  Outbox outbox;
  (void)membership.enter(last, kSoon, outbox);
  for (const MemberId id : {k1, k2}) {
    membership.stopped(id, stopped_after(10, 100));
  }
  return membership;
}

TEST(Quorum, ViewsInDoubtAreNotCountedForEver) {
  const Quorum quorum(with_quorum());
  EXPECT_FALSE(quorum.lack(after_views_in_doubt(kViewBasesMax - 1)));
  EXPECT_EQ(quorum.lack(after_views_in_doubt(kViewBasesMax)),
            "it is unknown of too many views in a row whether they committed a step");
}

TEST(Quorum, ViewsOfTheSameMembersAreOneBase) {
  const Quorum quorum(with_quorum());
  Membership membership = stopped({k1, k2}, 10);
  View last = view_with(7, 10, {k1, k2});
  last.bases = {{ViewId{5}, {k1, k2}}, {ViewId{6}, {k1, k2, k3}}};
  Outbox outbox;
  (void)membership.enter(last, kSoon, outbox);
  for (const MemberId id : {k1, k2}) {
    membership.stopped(id, stopped_after(10, 7));
  }
  const std::vector<ViewBase> bases = quorum.bases(membership);
  ASSERT_EQ(bases.size(), 2u);
  EXPECT_EQ(bases[0].id, ViewId{6});
  EXPECT_EQ(bases[1].id, last.id);
}

TEST(Quorum, SendsMembersElsewhereAfterItsPatienceAndNotTwiceAtOnce) {
  const CoordinatorOptions options = with_quorum();
  Quorum quorum(options);
  EXPECT_FALSE(quorum.has_waited_too_long(kLater));
  EXPECT_TRUE(quorum.wait(kSoon, kSoon));
  EXPECT_FALSE(quorum.wait(kLater, kLater)) << "it is no news";
  EXPECT_TRUE(quorum.is_waiting());
  EXPECT_FALSE(quorum.has_waited_too_long(kSoon + options.quorum_timeout - milliseconds(1)));
  EXPECT_TRUE(quorum.has_waited_too_long(kSoon + 2 * options.quorum_timeout));
  quorum.asked_again();
  EXPECT_FALSE(quorum.is_waiting());
  EXPECT_TRUE(quorum.has_idled(seconds(1), kSoon + seconds(1))) << "it still is not in charge";
  quorum.found();
  EXPECT_FALSE(quorum.has_idled(seconds(1), kSoon + seconds(9)));
}

/// Members that connected during the pause are heard only after it.
TEST(Quorum, ItsPatienceLastsLongerIfItStoodStillItself) {
  const CoordinatorOptions options = with_quorum();
  Quorum quorum(options);
  ASSERT_TRUE(quorum.wait(kSoon, kSoon));
  const Duration pause = seconds(700);
  quorum.extend_deadlines(pause, kSoon + pause);
  EXPECT_FALSE(quorum.has_waited_too_long(kSoon + pause));
  EXPECT_FALSE(quorum.has_idled(options.min_workers_timeout, kSoon + pause));
  EXPECT_TRUE(quorum.has_waited_too_long(kSoon + pause + 2 * options.quorum_timeout));
  quorum.extend_deadlines(pause, kSoon + seconds(1));
  EXPECT_FALSE(quorum.has_idled(seconds(1), kSoon + seconds(1))) << "never longer than since now";
}

TEST(Quorum, AJobThatHasNotBegunIsNotTakenOver) {
  const Quorum quorum(with_quorum());
  const Membership nobody(with_quorum());
  EXPECT_FALSE(quorum.lack(nobody));
  EXPECT_TRUE(quorum.reason_to_wait(nobody));
}

}  // namespace
}  // namespace mayfly::elastic
