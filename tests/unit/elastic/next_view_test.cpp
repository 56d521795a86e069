#include "elastic/core/next_view.hpp"

#include <gtest/gtest.h>

#include "tests/unit/elastic/membership_fixture.hpp"

namespace mayfly::elastic {
namespace {

CoordinatorOptions of_four_microbatches() {
  CoordinatorOptions options;
  options.microbatches = 4;
  options.observe_from_bytes = 500;
  return options;
}

Stopped holding(std::uint64_t committed, std::uint32_t first, std::uint32_t count) {
  Stopped stopped = stopped_after(committed);
  stopped.held = MicrobatchSet::range(first, count);
  return stopped;
}

TEST(NextView, ResumesAfterTheNewestStepAndNamesWhoIsBehind) {
  Membership membership = working({k1, k2});
  membership.stopped(k1, stopped_after(11));
  membership.stopped(k2, stopped_after(10));
  const View view =
      make_view(membership, membership.candidates(), ViewId{2}, {}, of_four_microbatches());
  EXPECT_EQ(view.id, ViewId{2});
  EXPECT_EQ(view.committed, Step{11});
  EXPECT_EQ(view.source, Rank{0});
  EXPECT_EQ(view.behind, std::vector<Rank>{Rank{1}});
  EXPECT_FALSE(view.has_observers()) << "everybody waits for a member that had work";
}

TEST(NextView, KeepsSumsOfMembersThatAreNotBehind) {
  Membership membership = working({k1, k2});
  membership.stopped(k1, holding(10, 0, 3));
  membership.stopped(k2, holding(10, 3, 1));
  const View view =
      make_view(membership, membership.candidates(), ViewId{2}, {}, of_four_microbatches());
  EXPECT_EQ(view.members[0].first_step, MicrobatchSet::range(0, 3));
  EXPECT_EQ(view.members[1].first_step, MicrobatchSet::range(3, 1));
  EXPECT_EQ(view.members[0].count, 2u) << "in later steps all have the same";
}

TEST(NextView, AJoinerWithALargeStateToFetchObserves) {
  Membership membership = working({k1});
  membership.stopped(k1, stopped_after(12));
  add_ready(membership, k2);
  CoordinatorOptions options = of_four_microbatches();
  const View view = make_view(membership, membership.candidates(), ViewId{2}, {}, options);
  EXPECT_EQ(view.members[1].observes, ViewId{2});
  EXPECT_TRUE(view.members[1].first_step.empty());
  options.observe_from_bytes = 5000;
  EXPECT_FALSE(
      make_view(membership, membership.candidates(), ViewId{2}, {}, options).has_observers());
}

TEST(NextView, NewcomersAreThoseThatWereInNoView) {
  Membership membership = working({k1});
  membership.stopped(k1, stopped_after(12));
  add_ready(membership, k2);
  add_ready(membership, k3);
  EXPECT_EQ(newcomers_in(view_with(2, 12, {k1, k3}), membership), std::vector<MemberId>{k3});
}

TEST(NextView, WhatALostMemberHadBegunIsDoneAgain) {
  Membership membership = working({k1, k2});
  EXPECT_EQ(count_redone(view_with(2, 10, {k1}), membership), 0u) << "nobody had begun the step";
  membership.remove(k2);
  membership.stopped(k1, holding(10, 0, 1));
  EXPECT_EQ(count_redone(view_with(2, 10, {k1}), membership), 1u);
}

TEST(NextView, ObserversThatAreDoneSoonAfterEachOtherStartTogether) {
  Membership membership(CoordinatorOptions{});
  for (const MemberId id : {k1, k2, k3}) {
    add_ready(membership, id, id == k1 ? 10 : 0);
  }
  View view = view_with(1, 10, {k1, k2, k3});
  view.members[1].observes = view.members[2].observes = ViewId{1};
  Outbox outbox;
  (void)membership.enter(view, kSoon, outbox);
  const auto to_start = [&](Instant now) {
    const auto planned = planned_change(membership, now, milliseconds(100));
    EXPECT_TRUE(!planned || planned->cause == ChangeCause::kPromote);
    return planned ? planned->members : std::vector<MemberId>{};
  };
  EXPECT_TRUE(to_start(kSoon).empty());
  EXPECT_TRUE(membership.caught_up(k2, kSoon));
  EXPECT_TRUE(to_start(kSoon + milliseconds(99)).empty()) << "k3 may be about to";
  EXPECT_EQ(to_start(kSoon + milliseconds(100)), std::vector<MemberId>{k2});
  EXPECT_TRUE(membership.caught_up(k3, kSoon));
  EXPECT_EQ(to_start(kSoon), (std::vector<MemberId>{k2, k3}));
}

TEST(NextView, LeaversGoBeforeOthersJoin) {
  CoordinatorOptions options;
  options.view_max = 3;
  Membership membership = working({k1, k2}, options);
  EXPECT_FALSE(planned_change(membership, kSoon, milliseconds(100)));
  add_ready(membership, k3);
  add_ready(membership, MemberId{4});
  const auto join = planned_change(membership, kSoon, milliseconds(100));
  ASSERT_TRUE(join);
  EXPECT_EQ(join->cause, ChangeCause::kJoin);
  EXPECT_EQ(join->members, std::vector<MemberId>{k3}) << "there is one place";
  membership.wants_to_leave(k1, "drained");
  const auto leave = planned_change(membership, kSoon, milliseconds(100));
  ASSERT_TRUE(leave);
  EXPECT_EQ(leave->cause, ChangeCause::kLeave);
  EXPECT_EQ(leave->members, std::vector<MemberId>{k1});
}

TEST(NextView, IsOnRecordBeforeAnybodyHearsOfIt) {
  Outbox outbox;
  announce(view_with(1, 0, {k1, k2}), std::nullopt, 32, outbox);
  const std::vector<CoordinatorEffect> effects = outbox.take();
  ASSERT_GE(effects.size(), 2u);
  const auto* record = std::get_if<coordinator_effect::Append>(&effects[0]);
  ASSERT_NE(record, nullptr);
  EXPECT_TRUE(record->durable) << "nobody could go on without the first view";
  const auto* sent = std::get_if<coordinator_effect::SendToAll>(&effects[1]);
  ASSERT_NE(sent, nullptr);
  EXPECT_EQ(sent->members, (std::vector<MemberId>{k1, k2}));
}

TEST(NextView, MembersOfALargeViewHearWhatChanges) {
  Outbox outbox;
  announce(view_with(2, 0, {k1, k3}), view_with(1, 0, {k1, k2}), 2, outbox);
  std::vector<std::string> kinds;
  for (const CoordinatorEffect& effect : outbox.take()) {
    if (const auto* sent = std::get_if<coordinator_effect::SendToAll>(&effect)) {
      kinds.emplace_back(name_of(sent->message));
    }
  }
  EXPECT_EQ(kinds, (std::vector<std::string>{name_of(NewViewDelta{}), name_of(NewView{})}));
}

}  // namespace
}  // namespace mayfly::elastic
