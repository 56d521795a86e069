#include <gmock/gmock.h>

#include "tests/unit/elastic/any_message.hpp"
#include "tests/unit/elastic/coordinator_harness.hpp"

namespace mayfly::elastic {
namespace {

using testing::HasSubstr;

CoordinatorOptions three_workers() {
  CoordinatorOptions options;
  options.microbatches = 6;
  options.initial_workers = 3;
  options.last_step = Step{6};
  return options;
}

/// Three members in a view that has committed step 4.
class FalseClaims : public testing::Test {
 protected:
  FalseClaims() : job(three_workers()), a(job.join()), b(job.join()), c(job.join()) {
    for (const MemberId member : {a, b, c}) {
      job.start(member, 4);
    }
    job.clear();
  }
  void expect_evicted(MemberId member, const std::string& why) {
    bool found = false;
    for (const auto& note : job.all<coordinator_effect::Note>()) {
      if (note.kind == "evicted") {
        found = found || note.member == member;
        EXPECT_EQ(note.member, member) << note.detail;
        EXPECT_THAT(note.detail, HasSubstr(why));
      }
    }
    EXPECT_TRUE(found) << why;
  }

  CoordinatorHarness job;
  MemberId a;
  MemberId b;
  MemberId c;
};

TEST_F(FalseClaims, WhoSaysThatItHasCommittedLessThanBeforeIsEvicted) {
  job.failed(a, 2);
  expect_evicted(a, "says that it has committed step 2, and said step 4 before");
  job.stopped(b, 4);
  job.stopped(c, 4);
  EXPECT_EQ(job.view_members(), (std::vector{b, c}));
  EXPECT_EQ(job.view().committed, Step{4});
}

TEST_F(FalseClaims, WhoIsAheadOfWhatTheOthersCanHaveCommittedIsEvicted) {
  job.failed(a, 90);
  job.stopped(b, 5);
  job.stopped(c, 4);
  expect_evicted(a, "says that it has committed step 90, while the others are at step 4");
  EXPECT_EQ(job.view_members(), (std::vector{b, c}));
  EXPECT_EQ(job.view().committed, Step{5});
  EXPECT_FALSE(job.noted("restarted"));
}

TEST_F(FalseClaims, WhoComesFurtherAheadThanTheJobCanBeJoinsAgainWithoutThatState) {
  const MemberId late = job.join(90);
  job.stopped(a, 4);
  job.stopped(b, 4);
  job.stopped(c, 4);
  expect_evicted(late, "says that it has committed step 90, while the others are at step 4");
  ASSERT_EQ(job.sent<Dismiss>(late).size(), 1U);
  EXPECT_EQ(job.sent<Dismiss>(late)[0].reason, DismissReason::kCorrupted);
  EXPECT_TRUE(job.sent<Dismiss>(late)[0].may_rejoin);
}

TEST_F(FalseClaims, ProgressThatNobodyElseMadeIsForgottenWithItsAuthor) {
  job.say(a, Progress{job.view().id, Step{1'000'000}, 0});
  job.failed(b, 4);
  job.stopped(a, 5);
  expect_evicted(a, "said step 1000000 before");
  job.stopped(c, 4);
  EXPECT_EQ(job.coordinator.committed(), Step{4});
  EXPECT_FALSE(job.noted("restarted"));
}

TEST_F(FalseClaims, OfTwoThatContradictEachOtherTheLowerOneIsBelieved) {
  job.give(coordinator_event::ConnectionLost{c, "gone"});
  job.stopped(a, 90);
  job.stopped(b, 4);
  expect_evicted(a, "while the others are at step 4");
  EXPECT_EQ(job.view().committed, Step{4});
}

TEST_F(FalseClaims, WhoHoldsWhatItWasNeverGivenIsEvicted) {
  job.failed(a, 4, c);
  job.stopped(b, 4, MicrobatchSet::range(5, 1));
  expect_evicted(b, "holds microbatch 5");
}

TEST_F(FalseClaims, WhoHoldsAMicrobatchThatNoStepHasIsEvicted) {
  job.failed(a, 4, MemberId{});
  job.stopped(c, 4, MicrobatchSet::range(kMicrobatchesMax - 1, 1));
  expect_evicted(c, "holds microbatch " + std::to_string(kMicrobatchesMax - 1));
}

TEST_F(FalseClaims, ASingleMemberCannotEndTheJob) {
  job.finished(a, 4);
  job.stopped(b, 4);
  job.stopped(c, 4);
  expect_evicted(a, "says that step 4 is the last one; the job's last is step 6");
  EXPECT_FALSE(job.outcome().has_value());
}

TEST_F(FalseClaims, NotEvenAllMembersEndTheJobBeforeItsLastStep) {
  job.finished(a, 5);
  job.finished(b, 5);
  job.finished(c, 5);
  EXPECT_TRUE(job.noted("evicted"));
  EXPECT_FALSE(job.outcome().has_value());
}

TEST_F(FalseClaims, ASingleMemberCannotKeepADoneJobFromEnding) {
  for (int view = 0; view < 8; ++view) {
    EXPECT_FALSE(job.noted("evicted")) << "it may be kept from it, view " << view;
    job.finished(a, 6);
    job.finished(b, 6);
    job.stopped(c, 6);
  }
  expect_evicted(c, "has not finished in 8 views in which most of the others have");
}

TEST_F(FalseClaims, WhereMostHaveNotFinishedNobodyIsBlamed) {
  for (int view = 0; view < 20; ++view) {
    job.finished(a, 6);
    job.stopped(b, 6);
    job.stopped(c, 6);
  }
  EXPECT_FALSE(job.noted("evicted"));
}

TEST_F(FalseClaims, WhoWasEvictedDoesNotTakeItsPlaceAgain) {
  job.failed(a, 2);
  expect_evicted(a, "and said step 4 before");
  Hello hello;
  hello.member = a;
  hello.job = job.coordinator.job();
  hello.incarnation = job.coordinator.incarnation();
  hello.author = hello.job;
  hello.view = job.view().id;
  job.give(coordinator_event::WorkerConnected{99, hello});
  ASSERT_FALSE(job.all<coordinator_effect::Refuse>().empty());
  EXPECT_EQ(job.all<coordinator_effect::Refuse>().back().refusal, Refusal::kEvicted);
}

/// It looks for its coordinator at the same address, where the same token is used again.
TEST_F(FalseClaims, AWorkerOfAnotherJobIsNotTakenForTheMemberWithItsId) {
  Hello hello;
  hello.member = a;
  hello.job = job.coordinator.job() + 1;
  hello.incarnation = Incarnation{1};
  hello.author = hello.job;
  for (const bool joins_again : {false, true}) {
    hello.joins_again = joins_again;
    job.give(coordinator_event::WorkerConnected{99, hello});
  }
  const auto refused = job.all<coordinator_effect::Refuse>();
  ASSERT_EQ(refused.size(), 2u);
  EXPECT_EQ(refused.back().refusal, Refusal::kElsewhere);
  EXPECT_FALSE(job.noted("lost"));
  EXPECT_EQ(job.coordinator.phase(), JobPhase::kRunning);
}

TEST_F(FalseClaims, WhoIsKeptFromFinishingByALossIsNotBlamed) {
  job.finished(a, 6);
  job.give(coordinator_event::ConnectionLost{c, "killed"});  // in what follows the last step
  job.failed(b, 6, c);
  EXPECT_FALSE(job.noted("evicted"));
  ASSERT_EQ(job.view_members(), (std::vector{a, b}));
  job.finished(a, 6);
  job.finished(b, 6);
  EXPECT_EQ(job.outcome(), Outcome::kDone);
}

TEST_F(FalseClaims, WhoIsKeptFromFinishingByABrokenGroupIsNotBlamed) {
  job.finished(a, 6);
  job.finished(b, 6);
  job.failed(c, 6, a);
  EXPECT_FALSE(job.noted("evicted"));
  ASSERT_EQ(job.view_members(), (std::vector{a, b, c}));
  for (const MemberId member : {a, b, c}) {
    job.finished(member, 6);
  }
  EXPECT_EQ(job.outcome(), Outcome::kDone);
}

/// With parameter servers, members do not count the job's steps.
TEST(FinishWithoutALastStep, IsWhatAllMembersSay) {
  CoordinatorOptions options = three_workers();
  options.last_step.reset();
  CoordinatorHarness job(options);
  const std::vector members = {job.join(), job.join(), job.join()};
  for (const MemberId member : members) {
    job.start(member, 4);
  }
  for (const MemberId member : members) {
    job.finished(member, 4);
  }
  EXPECT_FALSE(job.noted("evicted"));
  EXPECT_EQ(job.outcome(), Outcome::kDone);
}

TEST_F(FalseClaims, AJoinerAheadOfTheJobIsEvicted) {
  const MemberId late = job.join(1000);
  for (const MemberId member : {a, b, c}) {
    job.stopped(member, 5);
  }
  expect_evicted(late, "says that it has committed step 1000");
  EXPECT_EQ(job.view_members(), (std::vector{a, b, c}));
  EXPECT_EQ(job.view().committed, Step{5});
}

TEST_F(FalseClaims, AJoinerWithTheCheckpointOfOneThatWasLostJustAfterItsCommitIsWelcome) {
  job.give(coordinator_event::ConnectionLost{c, "gone"});
  const MemberId late = job.join(5);
  job.stopped(a, 4);
  job.stopped(b, 4);
  EXPECT_FALSE(job.noted("evicted"));
  EXPECT_EQ(job.view().committed, Step{5});
  EXPECT_EQ(job.view_members(), (std::vector{a, b, late}));
}

TEST_F(FalseClaims, AJoinerWithACheckpointFromBeforeEverybodyWasLostIsWelcome) {
  for (const MemberId member : {a, b, c}) {
    job.give(coordinator_event::ConnectionLost{member, "gone"});
  }
  const MemberId first = job.join(0);
  const MemberId second = job.join(4);
  job.stopped(first, 0);
  EXPECT_FALSE(job.noted("evicted"));
  EXPECT_EQ(job.view().committed, Step{4});
  EXPECT_EQ(job.view_members(), (std::vector{first, second}));
}

TEST_F(FalseClaims, WaitingForTooManyKeysIsTheEndOfIt) {
  const std::string long_key(1000, 'k');
  for (int i = 0; i < 2000 && !job.noted("evicted"); ++i) {
    job.say(a, StoreGet{job.view().id, long_key + std::to_string(i)});
  }
  expect_evicted(a, "too many keys");
}

TEST_F(FalseClaims, AFullStoreIsNotedOncePerView) {
  for (int i = 0; i < 200; ++i) {
    job.say(a, StoreSet{job.view().id, std::to_string(i), Bytes(1 << 20)});
  }
  std::size_t notes = 0;
  for (const auto& note : job.all<coordinator_effect::Note>()) {
    notes += note.kind == "store_full" ? 1 : 0;
  }
  EXPECT_EQ(notes, 1u);
}

// --- any message at any time

/// Checks what must be true of all effects after any events.
void check_effects(const std::vector<CoordinatorEffect>& effects, std::uint32_t microbatches,
                   ViewId& last_view) {
  for (const CoordinatorEffect& effect : effects) {
    if (const auto* published = std::get_if<coordinator_effect::ViewPublished>(&effect)) {
      const View& view = published->view;
      EXPECT_GT(value(view.id), value(last_view));
      last_view = view.id;
      MicrobatchSet seen;
      MicrobatchSet later;
      std::uint32_t count = 0;
      for (const ViewMember& member : view.members) {
        seen.add_all(member.first_step);
        later.add_all(MicrobatchSet::range(member.first, member.count));
        count += member.first_step.count() + member.count;
      }
      EXPECT_EQ(seen, MicrobatchSet::range(0, microbatches));
      EXPECT_EQ(later, MicrobatchSet::range(0, microbatches));
      EXPECT_EQ(count, 2 * microbatches);
    } else if (const auto* note = std::get_if<coordinator_effect::Note>(&effect)) {
      if (note->kind == "evicted") {
        EXPECT_TRUE(note->member.has_value());
        EXPECT_FALSE(note->detail.empty());
      }
    } else if (const auto* send = std::get_if<coordinator_effect::Send>(&effect)) {
      EXPECT_TRUE(decode(encode(send->message)).ok()) << name_of(send->message);
    } else if (const auto* to_all = std::get_if<coordinator_effect::SendToAll>(&effect)) {
      EXPECT_TRUE(decode(encode(to_all->message)).ok()) << name_of(to_all->message);
    }
  }
}

CoordinatorEvent any_event(RandomStream& random, const Coordinator& coordinator,
                           std::uint32_t microbatches, std::uint64_t members) {
  using namespace coordinator_event;
  const MemberId member{random.below(members + 1)};
  switch (random.below(40)) {
    case 0:
    case 1: return WorkerConnected{random.bits(), Hello{}};
    case 2: return ConnectionLost{member, "any"};
    case 3: return SentinelReport{member, "any"};
    case 4: return DrainAsked{member, "any"};
    case 5: return PauseAsked{random.below(3) == 0};
    case 6: return SentinelBeat{member};
    case 7:
    case 8: return Tick{};
    case 9:
      return random.below(50) == 0 ? CoordinatorEvent(StopAsked{"any"}) : CoordinatorEvent(Tick{});
    case 10:
    case 11: return Received{member, Ready{}};
    default: break;
  }
  const ViewId view = coordinator.view() ? coordinator.view()->id : ViewId{};
  const bool is_fair = random.below(3) == 0;  // so that some views also end in the usual way
  if (is_fair && coordinator.view()) {
    if (coordinator.phase() == JobPhase::kWaiting || coordinator.phase() == JobPhase::kPaused) {
      return random.below(2) == 0 ? CoordinatorEvent(Received{member, Ready{}})
                                  : CoordinatorEvent(PauseAsked{false});
    }
    return Received{member, Stopped{view, coordinator.committed(), {}, false, false, {}, "", {}}};
  }
  return Received{member, AnyMessage(random, view, coordinator.committed(), microbatches).draw()};
}

TEST(CoordinatorProperty, AnyMessagesInAnyOrderNeitherAbortItNorMakeABadView) {
  std::uint64_t views = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random{CounterRandom(seed).split("any messages")};
    CoordinatorOptions options;
    options.microbatches = static_cast<std::uint32_t>(1 + random.below(9));
    options.initial_workers = static_cast<std::uint32_t>(1 + random.below(4));
    options.view_max = 4 + static_cast<std::uint32_t>(random.below(4));
    options.observe_from_bytes = random.below(2) == 0 ? 100 : std::uint64_t{1} << 40;
    options.delta_from_members = random.below(2) == 0 ? 1 : 32;
    options.seed = seed;
    Coordinator coordinator(options);
    Instant now;
    ViewId last_view{};
    std::uint64_t members = 0;
    for (int i = 0; i < 400; ++i) {
      now = now + milliseconds(static_cast<std::int64_t>(random.below(40)));
      const auto effects =
          coordinator.handle(now, any_event(random, coordinator, options.microbatches, members));
      for (const CoordinatorEffect& effect : effects) {
        members += std::holds_alternative<coordinator_effect::Accept>(effect) ? 1 : 0;
      }
      check_effects(effects, options.microbatches, last_view);
      ASSERT_LE(coordinator.members().size(), 60u) << "dismissed ones go with their connection";
    }
    views += value(last_view);
  }
  EXPECT_GT(views, 500u) << "the runs must get somewhere";
}

}  // namespace
}  // namespace mayfly::elastic
