#include <gtest/gtest.h>

#include <algorithm>

#include "elastic/core/member.hpp"

// A member whose coordinator cannot be reached, returns, or is replaced.

namespace mayfly::elastic {
namespace {

constexpr MemberId kResumed{2};
constexpr std::uint64_t kJob = 70;
constexpr std::uint64_t kFirstAuthor = 71;
constexpr std::uint64_t kOtherAuthor = 72;
const Welcome kFirst{kResumed, Incarnation{1}, kFirstAuthor, kJob, false};

Welcome welcome(std::uint64_t incarnation, std::uint64_t author) {
  return {kResumed, Incarnation{incarnation}, author, kJob, true};
}

View pair_view(std::uint64_t id, std::uint64_t committed = 0) {
  View view;
  view.id = ViewId{id};
  view.committed = Step{committed};
  view.members = {{MemberId{1}, "", {}, 0, 0}, {kResumed, "", {}, 0, 0}};
  return view;
}

template <typename Effect>
const Effect* only_effect(const std::vector<MemberEffect>& effects) {
  return effects.size() == 1 ? std::get_if<Effect>(&effects.front()) : nullptr;
}

template <typename Sent>
std::vector<Sent> sent(const std::vector<MemberEffect>& effects) {
  std::vector<Sent> found;
  for (const MemberEffect& effect : effects) {
    const auto* send = std::get_if<member_effect::Send>(&effect);
    if (send != nullptr && std::holds_alternative<Sent>(send->message)) {
      found.push_back(std::get<Sent>(send->message));
    }
  }
  return found;
}

Member welcomed_member() {
  Member member(kFirst);
  (void)member.handle(member_event::Loaded{Step{5}});
  return member;
}

Member member_in_view(std::uint64_t view = 1) {
  Member member = welcomed_member();
  const auto effects = member.handle(member_event::Received{NewView{pair_view(view, 5)}});
  EXPECT_NE(only_effect<member_effect::RunView>(effects), nullptr);
  return member;
}

member_event::TrainerStopped stopped_at(std::uint64_t view, std::uint64_t committed) {
  Stopped report;
  report.view = ViewId{view};
  report.committed = Step{committed};
  report.held = MicrobatchSet::range(0, 2);
  report.contributed = false;
  return {report};
}

TEST(MemberWithoutCoordinator, GoesOnAndSaysNothing) {
  Member member = member_in_view();
  EXPECT_TRUE(member.handle(member_event::CoordinatorLost{}).empty());
  EXPECT_TRUE(member.handle(member_event::GroupFormed{ViewId{1}}).empty());
  EXPECT_TRUE(member.handle(member_event::Progressed{ViewId{1}, Step{6}, 2}).empty());
  EXPECT_TRUE(member.handle(stopped_at(1, 7)).empty());
  EXPECT_TRUE(member.needs_coordinator());
}

TEST(MemberWithoutCoordinator, IntroducesItselfWithWhatItHasAccepted) {
  Member member = member_in_view(3);
  (void)member.handle(member_event::CoordinatorLost{});
  Hello hello;
  member.introduce(hello);
  EXPECT_EQ(hello.member, kResumed);
  EXPECT_EQ(hello.job, kJob);
  EXPECT_EQ(hello.incarnation, Incarnation{1});
  EXPECT_EQ(hello.view, ViewId{3});
}

TEST(MemberWithoutCoordinator, ObeysNothingThatArrivesBeforeTheNextWelcome) {
  Member member = member_in_view();
  (void)member.handle(member_event::CoordinatorLost{});
  EXPECT_TRUE(member.handle(member_event::Received{Stop{ViewId{1}, false}}).empty());
  EXPECT_TRUE(member.handle(member_event::Received{Dismiss{}}).empty());
}

TEST(MemberResume, SaysWhatItRunsToTheNextIncarnation) {
  Member member = member_in_view();
  (void)member.handle(member_event::Progressed{ViewId{1}, Step{6}, 2.5F});
  (void)member.handle(member_event::CoordinatorLost{});
  const auto effects = member.handle(member_event::Received{welcome(2, kOtherAuthor)});
  ASSERT_EQ(effects.size(), 2u);
  EXPECT_EQ(std::get<member_effect::Adopt>(effects[0]).incarnation, Incarnation{2});
  ASSERT_EQ(sent<Resume>(effects).size(), 1u);
  const Resume told = sent<Resume>(effects)[0];
  EXPECT_EQ(told.incarnation, Incarnation{2});
  EXPECT_EQ(told.phase, ResumePhase::kRunning);
  EXPECT_EQ(told.view, pair_view(1, 5));
  EXPECT_EQ(told.committed, Step{6});
  EXPECT_TRUE(told.is_active);
  EXPECT_EQ(told.microbatch_ms, 2.5F);
  EXPECT_FALSE(told.last);
}

TEST(MemberResume, SaysWhatTheTrainerReportedMeanwhile) {
  Member member = member_in_view();
  (void)member.handle(member_event::CoordinatorLost{});
  (void)member.handle(stopped_at(1, 5));
  (void)member.handle(member_event::LeaveAsked{"notice"});
  const auto told = sent<Resume>(member.handle(member_event::Received{welcome(2, kFirstAuthor)}));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].phase, ResumePhase::kStopped);
  ASSERT_TRUE(told[0].last);
  EXPECT_EQ(told[0].last->held, MicrobatchSet::range(0, 2));
  EXPECT_FALSE(told[0].last->contributed);
  EXPECT_FALSE(told[0].is_active);
  EXPECT_TRUE(told[0].is_leaving);
  EXPECT_EQ(told[0].leave_reason, "notice");
}

TEST(MemberResume, IsReadyIfItHasRunNothingYetAndLoadingBeforeThat) {
  Member loading(kFirst);
  (void)loading.handle(member_event::CoordinatorLost{});
  const auto first = sent<Resume>(loading.handle(member_event::Received{welcome(2, 9)}));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].phase, ResumePhase::kLoading);

  Member ready = welcomed_member();
  (void)ready.handle(member_event::CoordinatorLost{});
  const auto second = sent<Resume>(ready.handle(member_event::Received{welcome(2, 9)}));
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].phase, ResumePhase::kReady);
  EXPECT_EQ(second[0].committed, Step{5});
  EXPECT_FALSE(second[0].view);
}

TEST(MemberResume, TheSameCoordinatorMayAskAgainOnTheSameConnection) {
  Member member = member_in_view();
  const auto effects = member.handle(member_event::Received{welcome(3, kFirstAuthor)});
  ASSERT_EQ(sent<Resume>(effects).size(), 1u);
  EXPECT_EQ(sent<Resume>(effects)[0].incarnation, Incarnation{3});
}

/// The member loses its coordinator and finds one with this incarnation. Returns the member's
/// report to the latter.
Resume told_to(Member& member, std::uint64_t incarnation) {
  (void)member.handle(member_event::CoordinatorLost{});
  const auto told =
      sent<Resume>(member.handle(member_event::Received{welcome(incarnation, kOtherAuthor)}));
  EXPECT_EQ(told.size(), 1u);
  return told.empty() ? Resume{} : told[0];
}

TEST(MemberResume, SaysThatItCaughtUpInTheViewThatItIsInAndInNoOther) {
  Member member = member_in_view();
  (void)member.handle(member_event::StateCaughtUp{ViewId{1}, Step{6}});
  const Resume first = told_to(member, 2);
  EXPECT_TRUE(first.has_caught_up);
  EXPECT_EQ(first.committed, Step{6});
  (void)member.handle(stopped_at(1, 7));
  const View next = pair_view(id_base(Incarnation{2}) + 1, 7);
  ASSERT_NE(
      only_effect<member_effect::RunView>(member.handle(member_event::Received{NewView{next}})),
      nullptr);
  EXPECT_FALSE(told_to(member, 3).has_caught_up);
}

TEST(MemberResume, SaysWhatItHeldWhenItEnteredTheViewThatItRuns) {
  Member member = member_in_view();
  EXPECT_EQ(told_to(member, 2).held_before, MicrobatchSet{}) << "it entered with nothing";
  (void)member.handle(stopped_at(1, 7));
  const Resume waiting = told_to(member, 3);
  ASSERT_TRUE(waiting.last);
  EXPECT_EQ(waiting.last->held, MicrobatchSet::range(0, 2));
  EXPECT_EQ(waiting.held_before, MicrobatchSet{}) << "that is in its last report";
  EXPECT_TRUE(waiting.is_active);

  const View next = pair_view(id_base(Incarnation{3}) + 1, 7);
  (void)member.handle(member_event::Received{NewView{next}});
  const Resume running = told_to(member, 4);
  EXPECT_EQ(running.phase, ResumePhase::kRunning);
  EXPECT_EQ(running.held_before, MicrobatchSet::range(0, 2));
  EXPECT_FALSE(running.last);
  EXPECT_FALSE(running.is_active) << "no step of the new view is committed";

  auto empty = stopped_at(value(next.id), 7);
  empty.report.held = MicrobatchSet{};
  (void)member.handle(empty);
  (void)member.handle(member_event::Received{NewView{pair_view(id_base(Incarnation{4}) + 1, 7)}});
  EXPECT_EQ(told_to(member, 5).held_before, MicrobatchSet{}) << "it held nothing any more";
}

TEST(MemberResume, SaysTheLastSpeedThatWasKnown) {
  Member member = member_in_view();
  (void)member.handle(member_event::Progressed{ViewId{1}, Step{6}, 2.5F});
  (void)member.handle(member_event::Progressed{ViewId{1}, Step{7}, 0});
  const Resume told = told_to(member, 2);
  EXPECT_EQ(told.microbatch_ms, 2.5F);
  EXPECT_EQ(told.committed, Step{7});
}

TEST(MemberFencing, NeverObeysALowerIncarnation) {
  Member member = member_in_view();
  (void)member.handle(member_event::CoordinatorLost{});
  (void)member.handle(member_event::Received{welcome(3, kOtherAuthor)});
  (void)member.handle(member_event::CoordinatorLost{});
  const auto effects = member.handle(member_event::Received{welcome(2, kFirstAuthor)});
  EXPECT_NE(only_effect<member_effect::TryElsewhere>(effects), nullptr);
  EXPECT_TRUE(member.handle(member_event::Received{Stop{ViewId{1}, false}}).empty());
}

TEST(MemberFencing, VotesForOneCoordinatorPerIncarnation) {
  Member member = member_in_view();
  (void)member.handle(member_event::CoordinatorLost{});
  (void)member.handle(member_event::Received{welcome(2, kFirstAuthor)});
  (void)member.handle(member_event::CoordinatorLost{});
  EXPECT_NE(only_effect<member_effect::TryElsewhere>(
                member.handle(member_event::Received{welcome(2, kOtherAuthor)})),
            nullptr);
  EXPECT_EQ(sent<Resume>(member.handle(member_event::Received{welcome(2, kFirstAuthor)})).size(),
            1u);
}

TEST(MemberFencing, FollowsNoCoordinatorOfAnotherJob) {
  Member member = member_in_view();
  (void)member.handle(member_event::CoordinatorLost{});
  Welcome other = welcome(5, kOtherAuthor);
  other.job = kJob + 1;
  EXPECT_NE(only_effect<member_effect::TryElsewhere>(member.handle(member_event::Received{other})),
            nullptr);
}

TEST(MemberFencing, EntersOnlyViewsOfTheIncarnationItObeys) {
  Member member = member_in_view(3);
  (void)member.handle(member_event::CoordinatorLost{});
  (void)member.handle(stopped_at(3, 5));
  (void)member.handle(member_event::Received{welcome(2, kOtherAuthor)});
  EXPECT_TRUE(member.handle(member_event::Received{NewView{pair_view(4)}}).empty());
  const View of_second = pair_view(id_base(Incarnation{2}) + 1);
  EXPECT_NE(only_effect<member_effect::RunView>(
                member.handle(member_event::Received{NewView{of_second}})),
            nullptr);
}

TEST(MemberTurnedAway, TriesTheOthersIfThisOneIsNotInCharge) {
  Member member = member_in_view();
  (void)member.handle(member_event::CoordinatorLost{});
  const auto elsewhere = member_event::Received{Refused{"standby", Refusal::kElsewhere}};
  EXPECT_NE(only_effect<member_effect::TryElsewhere>(member.handle(elsewhere)), nullptr);
  (void)member.handle(member_event::Received{welcome(2, kOtherAuthor)});
  const auto no_quorum = member_event::Received{NoQuorum{"1 of 3", 5}};
  const auto effects = member.handle(no_quorum);
  const auto* other = only_effect<member_effect::TryElsewhere>(effects);
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(other->skip, 5u);
}

TEST(MemberTurnedAway, ForGoodItLeavesAndIsDoneIfItHasFinished) {
  for (const bool finished : {false, true}) {
    Member member = member_in_view();
    auto last = stopped_at(1, 9);
    last.report.finished = finished;
    (void)member.handle(last);
    (void)member.handle(member_event::CoordinatorLost{});
    const auto effects =
        member.handle(member_event::Received{Refused{"the job has ended", Refusal::kFinal}});
    const auto* leave = only_effect<member_effect::Leave>(effects);
    ASSERT_NE(leave, nullptr);
    EXPECT_EQ(leave->reason, finished ? DismissReason::kJobDone : DismissReason::kJobFailed);
    EXPECT_EQ(leave->detail, "the job has ended");
    EXPECT_FALSE(leave->may_rejoin);
  }
}

TEST(MemberTurnedAway, IsWelcomeAsANewMemberIfTheJobWentOnWithoutIt) {
  Member member = member_in_view();
  (void)member.handle(member_event::CoordinatorLost{});
  const auto effects = member.handle(member_event::Received{Refused{"evicted", Refusal::kEvicted}});
  ASSERT_EQ(effects.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<member_effect::AbortGroup>(effects[0]));
  EXPECT_TRUE(std::get<member_effect::Leave>(effects[1]).may_rejoin);
}

/// A member of a job with a quorum that is evicted while it waits after view 1.
Former evicted_member() {
  Welcome first = kFirst;
  first.quorum = true;
  Member member(first);
  (void)member.handle(member_event::Loaded{Step{5}});
  (void)member.handle(member_event::Received{NewView{pair_view(1, 5)}});
  (void)member.handle(stopped_at(1, 6));
  (void)member.handle(member_event::CoordinatorLost{});
  (void)member.handle(member_event::Received{welcome(3, kOtherAuthor)});
  const auto effects =
      member.handle(member_event::Received{Dismiss{DismissReason::kEvicted, false, "", true}});
  EXPECT_NE(only_effect<member_effect::Leave>(effects), nullptr)
      << "it does not say that it is gone";
  const auto* leave = only_effect<member_effect::Leave>(effects);
  return leave != nullptr && leave->former ? *leave->former : Former{};
}

TEST(MemberJoinsAgain, UnderItsIdIfThereIsAQuorumAndSaysWhatItEnteredBefore) {
  Member again(evicted_member());
  EXPECT_EQ(again.id(), kResumed);
  Hello hello;
  again.introduce(hello);
  EXPECT_TRUE(hello.joins_again);
  EXPECT_EQ(hello.member, kResumed);
  EXPECT_EQ(hello.job, kJob);
  EXPECT_EQ(hello.incarnation, Incarnation{3});
  EXPECT_EQ(hello.author, kOtherAuthor);
  EXPECT_EQ(hello.view, ViewId{1});
  const auto told = sent<Resume>(again.handle(member_event::Received{welcome(3, kOtherAuthor)}));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].phase, ResumePhase::kLoading);
  ASSERT_TRUE(told[0].view && told[0].last);
  EXPECT_EQ(told[0].view->id, ViewId{1});
  EXPECT_TRUE(told[0].is_active);
  EXPECT_EQ(told[0].committed, Step{}) << "it holds nothing yet";
}

TEST(MemberJoinsAgain, ButObeysNoLowerIncarnationThanTheOneBefore) {
  Member again(evicted_member());
  for (const Welcome& lower : {welcome(2, kOtherAuthor), welcome(3, kFirstAuthor)}) {
    const auto effects = again.handle(member_event::Received{lower});
    EXPECT_NE(only_effect<member_effect::TryElsewhere>(effects), nullptr);
  }
}

TEST(MemberJoinsAgain, AndRunsLaterViewsOnly) {
  Member again(evicted_member());
  (void)again.handle(member_event::Received{welcome(3, kOtherAuthor)});
  (void)again.handle(member_event::Loaded{Step{6}});
  EXPECT_TRUE(again.handle(member_event::Received{NewView{pair_view(1, 5)}}).empty());
  const std::uint64_t later = id_base(Incarnation{3}) + 1;
  const auto effects = again.handle(member_event::Received{NewView{pair_view(later, 6)}});
  EXPECT_NE(only_effect<member_effect::RunView>(effects), nullptr);
  Hello hello;
  again.introduce(hello);
  EXPECT_FALSE(hello.joins_again);
  EXPECT_EQ(hello.view, ViewId{later});
}

TEST(MemberJoinsAgain, StillKnowsWhatItEnteredIfItIsEvictedTwice) {
  Member again(evicted_member());
  (void)again.handle(member_event::Received{welcome(4, kFirstAuthor)});
  const auto effects =
      again.handle(member_event::Received{Dismiss{DismissReason::kEvicted, false, "", true}});
  ASSERT_NE(only_effect<member_effect::Leave>(effects), nullptr);
  const std::optional<Former> former = only_effect<member_effect::Leave>(effects)->former;
  ASSERT_TRUE(former && former->view);
  EXPECT_EQ(former->view->id, ViewId{1});
  EXPECT_TRUE(former->is_active);
  EXPECT_EQ(former->incarnation, Incarnation{4});
  EXPECT_EQ(former->author, kFirstAuthor);
}

TEST(MemberGivenUp, FinishesItsViewFirstAndIsDoneIfItWasTheLastStep) {
  Member member = member_in_view();
  (void)member.handle(member_event::CoordinatorLost{});
  EXPECT_TRUE(member.handle(member_event::CoordinatorGivenUp{}).empty());
  auto last = stopped_at(1, 9);
  last.report.finished = true;
  const auto effects = member.handle(last);
  ASSERT_NE(only_effect<member_effect::Leave>(effects), nullptr);
  EXPECT_EQ(only_effect<member_effect::Leave>(effects)->reason, DismissReason::kJobDone);
}

TEST(MemberGivenUp, FailsWhenItWouldNeedTheLostCoordinator) {
  Member waiting = welcomed_member();
  (void)waiting.handle(member_event::CoordinatorLost{});
  const auto at_once = waiting.handle(member_event::CoordinatorGivenUp{});
  ASSERT_NE(only_effect<member_effect::Leave>(at_once), nullptr);
  EXPECT_EQ(only_effect<member_effect::Leave>(at_once)->reason, DismissReason::kJobFailed);
  EXPECT_EQ(only_effect<member_effect::Leave>(at_once)->detail, "the coordinator is gone");
}

TEST(MemberGivenUp, LeavesAtOnceWhenItIsAskedTo) {
  Member member = member_in_view();
  (void)member.handle(member_event::CoordinatorGivenUp{});  // ignored: a coordinator is connected
  (void)member.handle(member_event::CoordinatorLost{});
  (void)member.handle(member_event::CoordinatorGivenUp{});
  const auto effects = member.handle(member_event::LeaveAsked{"notice"});
  const auto is_leave = [](const MemberEffect& effect) {
    const auto* leave = std::get_if<member_effect::Leave>(&effect);
    return leave != nullptr && leave->reason == DismissReason::kDrained;
  };
  EXPECT_TRUE(std::any_of(effects.begin(), effects.end(), is_leave));
}

TEST(MemberGivenUp, SavesWhatItHasTrainedBeforeItLeaves) {
  Member member = member_in_view();
  (void)member.handle(member_event::Progressed{ViewId{1}, Step{6}, 3, 1});
  (void)member.handle(member_event::CoordinatorLost{});
  (void)member.handle(member_event::CoordinatorGivenUp{});
  const auto effects = member.handle(stopped_at(1, 7));
  ASSERT_NE(only_effect<member_effect::Leave>(effects), nullptr);
  EXPECT_TRUE(only_effect<member_effect::Leave>(effects)->write_checkpoint);

  Member loading = welcomed_member();  // it has trained nothing
  (void)loading.handle(member_event::CoordinatorLost{});
  const auto at_once = loading.handle(member_event::CoordinatorGivenUp{});
  EXPECT_FALSE(only_effect<member_effect::Leave>(at_once)->write_checkpoint);
}

TEST(MemberGivenUp, SavesWhatEarlierViewsHaveTrainedIfTheLastOneHasCommittedNothing) {
  Member member = member_in_view();
  (void)member.handle(member_event::CoordinatorLost{});
  (void)member.handle(member_event::CoordinatorGivenUp{});
  const auto effects = member.handle(stopped_at(1, 5));
  ASSERT_NE(only_effect<member_effect::Leave>(effects), nullptr);
  EXPECT_TRUE(only_effect<member_effect::Leave>(effects)->write_checkpoint);

  Member behind = member_in_view();  // it has not received the state of its view
  (void)behind.handle(member_event::CoordinatorLost{});
  (void)behind.handle(member_event::CoordinatorGivenUp{});
  const auto without = behind.handle(stopped_at(1, 3));
  EXPECT_FALSE(only_effect<member_effect::Leave>(without)->write_checkpoint);
}

TEST(MemberGivenUp, SavesNothingThatItHasOnlyObserved) {
  View view = pair_view(1, 5);
  view.members[1].observes = view.id;
  for (const bool is_asked : {false, true}) {
    Member member(kFirst);
    (void)member.handle(member_event::Loaded{Step{}});
    (void)member.handle(member_event::Received{NewView{view}});
    (void)member.handle(member_event::Progressed{view.id, Step{6}, 3, 1});
    (void)member.handle(member_event::CoordinatorLost{});
    (void)member.handle(member_event::CoordinatorGivenUp{});
    const auto effects = is_asked ? member.handle(member_event::LeaveAsked{"notice"})
                                  : member.handle(stopped_at(1, 0));
    ASSERT_FALSE(effects.empty());
    const auto* leave = std::get_if<member_effect::Leave>(&effects.back());
    ASSERT_NE(leave, nullptr);
    EXPECT_FALSE(leave->write_checkpoint);
  }
}

TEST(MemberGivenUp, IsTakenBackByAWelcome) {
  Member member = member_in_view();
  (void)member.handle(member_event::CoordinatorLost{});
  (void)member.handle(member_event::CoordinatorGivenUp{});
  (void)member.handle(member_event::Received{welcome(2, kOtherAuthor)});
  EXPECT_EQ(sent<Stopped>(member.handle(stopped_at(1, 5))).size(), 1u);
}

}  // namespace
}  // namespace mayfly::elastic
