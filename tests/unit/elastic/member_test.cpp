#include "elastic/core/member.hpp"

#include <gtest/gtest.h>

namespace mayfly::elastic {
namespace {

constexpr MemberId kSelf{2};

View view_of(std::uint64_t id, std::vector<MemberId> members) {
  View view;
  view.id = ViewId{id};
  for (const MemberId member : members) {
    view.members.push_back({member, "", {}, 0, 0});
  }
  return view;
}

member_event::Received received(Message message) {
  return {std::move(message)};
}

template <typename Effect>
const Effect* only(const std::vector<MemberEffect>& effects) {
  return effects.size() == 1 ? std::get_if<Effect>(&effects.front()) : nullptr;
}

template <typename Sent>
const Sent* only_sent(const std::vector<MemberEffect>& effects) {
  const auto* send = only<member_effect::Send>(effects);
  return send == nullptr ? nullptr : std::get_if<Sent>(&send->message);
}

member_event::TrainerStopped trainer_stopped(std::uint64_t view, bool finished = false) {
  Stopped report;
  report.view = ViewId{view};
  report.finished = finished;
  return {report};
}

Member waiting_member() {
  Member member(kSelf);
  EXPECT_NE(only_sent<Ready>(member.handle(member_event::Loaded{Step{5}})), nullptr);
  return member;
}

Member running_member(std::uint64_t view = 1) {
  Member member = waiting_member();
  const auto effects = member.handle(received(NewView{view_of(view, {MemberId{1}, kSelf})}));
  EXPECT_NE(only<member_effect::RunView>(effects), nullptr);
  return member;
}

TEST(Member, SaysReadyOnceWithTheStateItLoaded) {
  Member member(kSelf);
  const auto effects = member.handle(member_event::Loaded{Step{5}});
  ASSERT_NE(only_sent<Ready>(effects), nullptr);
  EXPECT_EQ(only_sent<Ready>(effects)->committed, Step{5});
  EXPECT_TRUE(member.handle(member_event::Loaded{Step{5}}).empty());
}

TEST(Member, RunsAViewThatContainsIt) {
  (void)running_member();
}

TEST(Member, IgnoresAViewWithoutIt) {
  Member member = waiting_member();
  EXPECT_TRUE(member.handle(received(NewView{view_of(1, {MemberId{1}})})).empty());
}

TEST(Member, IgnoresAViewBeforeItIsLoaded) {
  Member member(kSelf);
  EXPECT_TRUE(member.handle(received(NewView{view_of(1, {kSelf})})).empty());
}

TEST(Member, NeverRunsTwoViewsAtOnce) {
  Member member = running_member(1);
  EXPECT_TRUE(member.handle(received(NewView{view_of(2, {kSelf})})).empty());
}

TEST(Member, NeverRunsAnOldViewAgain) {
  Member member = running_member(3);
  (void)member.handle(trainer_stopped(3));
  EXPECT_TRUE(member.handle(received(NewView{view_of(3, {kSelf})})).empty());
  EXPECT_TRUE(member.handle(received(NewView{view_of(2, {kSelf})})).empty());
  EXPECT_NE(only<member_effect::RunView>(member.handle(received(NewView{view_of(4, {kSelf})}))),
            nullptr);
}

TEST(Member, AbortsItsGroupOnceWhenToldToStopAtOnce) {
  Member member = running_member();
  EXPECT_NE(only<member_effect::AbortGroup>(member.handle(received(Stop{ViewId{1}, false}))),
            nullptr);
  EXPECT_TRUE(member.handle(received(Stop{ViewId{1}, false})).empty());
}

TEST(Member, AsksForABoundaryAndCanStillBeToldToStopAtOnce) {
  Member member = running_member();
  EXPECT_NE(only<member_effect::AskForBoundary>(member.handle(received(Stop{ViewId{1}, true}))),
            nullptr);
  EXPECT_NE(only<member_effect::AbortGroup>(member.handle(received(Stop{ViewId{1}, false}))),
            nullptr);
}

TEST(Member, KnowsAtABoundaryWhetherItStays) {
  Member member = running_member();
  const auto told = member.handle(received(Stop{ViewId{1}, true, true}));
  ASSERT_NE(only<member_effect::AskForBoundary>(told), nullptr);
  EXPECT_TRUE(only<member_effect::AskForBoundary>(told)->stays);
}

TEST(Member, DoesNotStayIfItHasAskedToLeave) {
  Member member = running_member();
  (void)member.handle(member_event::LeaveAsked{"notice"});
  const auto told = member.handle(received(Stop{ViewId{1}, true, true}));
  ASSERT_NE(only<member_effect::AskForBoundary>(told), nullptr);
  EXPECT_FALSE(only<member_effect::AskForBoundary>(told)->stays);
}

TEST(Member, IgnoresAStopOfAnotherView) {
  Member member = running_member(2);
  EXPECT_TRUE(member.handle(received(Stop{ViewId{1}, false})).empty());
}

TEST(Member, ReportsWhatTheTrainerReports) {
  Member member = running_member();
  const Stopped report{ViewId{1},   Step{9}, MicrobatchSet::range(0, 3), false, true,
                       MemberId{1}, "reset"};
  const auto effects = member.handle(member_event::TrainerStopped{report});
  ASSERT_NE(only_sent<Stopped>(effects), nullptr);
  EXPECT_EQ(*only_sent<Stopped>(effects), report);
}

TEST(Member, IgnoresATrainerReportOfAnotherView) {
  Member member = running_member(2);
  EXPECT_TRUE(member.handle(trainer_stopped(1)).empty());
  EXPECT_TRUE(member.handle(member_event::GroupFormed{ViewId{1}}).empty());
  EXPECT_TRUE(member.handle(member_event::StateSynced{ViewId{1}}).empty());
}

TEST(Member, TellsTheCoordinatorThatItCaughtUpWithItsView) {
  Member member = running_member(2);
  EXPECT_TRUE(member.handle(member_event::StateCaughtUp{ViewId{1}, Step{9}}).empty());
  const auto effects = member.handle(member_event::StateCaughtUp{ViewId{2}, Step{9}});
  ASSERT_NE(only_sent<CaughtUp>(effects), nullptr);
  EXPECT_EQ(*only_sent<CaughtUp>(effects), (CaughtUp{ViewId{2}, Step{9}}));
}

TEST(Member, TellsTheCoordinatorThatItsGroupStandsAndIsInStep) {
  Member member = running_member();
  EXPECT_NE(only_sent<Formed>(member.handle(member_event::GroupFormed{ViewId{1}})), nullptr);
  EXPECT_NE(only_sent<Synced>(member.handle(member_event::StateSynced{ViewId{1}})), nullptr);
}

TEST(Member, AsksToLeaveOnce) {
  Member member = running_member();
  EXPECT_NE(only_sent<LeaveRequest>(member.handle(member_event::LeaveAsked{"SIGTERM"})), nullptr);
  EXPECT_TRUE(member.handle(member_event::LeaveAsked{"SIGTERM"}).empty());
}

TEST(Member, ADismissalWhileRunningIsConfirmedThenAbortsTheGroup) {
  Member member = running_member();
  const auto effects =
      member.handle(received(Dismiss{DismissReason::kEvicted, false, "slow", true}));
  ASSERT_EQ(effects.size(), 3u);
  EXPECT_EQ(std::get<member_effect::Send>(effects[0]).message, Message{Left{Incarnation{1}}});
  EXPECT_TRUE(std::holds_alternative<member_effect::AbortGroup>(effects[1]));
  EXPECT_EQ(std::get<member_effect::Leave>(effects[2]).reason, DismissReason::kEvicted);
  EXPECT_TRUE(std::get<member_effect::Leave>(effects[2]).may_rejoin);
}

TEST(Member, ADismissalWhileWaitingPassesOnWhoWritesTheCheckpoint) {
  Member member = waiting_member();
  const auto effects = member.handle(received(Dismiss{DismissReason::kJobStopped, true, ""}));
  ASSERT_EQ(effects.size(), 2u);
  EXPECT_TRUE(std::get<member_effect::Leave>(effects[1]).write_checkpoint);
}

TEST(Member, StaysGone) {
  Member member = waiting_member();
  (void)member.handle(received(Dismiss{}));
  EXPECT_TRUE(member.handle(received(NewView{view_of(1, {kSelf})})).empty());
  EXPECT_TRUE(member.handle(member_event::LeaveAsked{""}).empty());
  EXPECT_TRUE(member.handle(member_event::CoordinatorLost{}).empty());
}

}  // namespace
}  // namespace mayfly::elastic
