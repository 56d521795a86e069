#include "elastic/core/view.hpp"

#include <gtest/gtest.h>

#include "base/random.hpp"
#include "elastic/core/messages.hpp"
#include "tests/unit/elastic/coordinator_harness.hpp"

namespace mayfly::elastic {
namespace {

View random_view(RandomStream& random, ViewId id, const View* before) {
  View view{id, random.bits(), Step{random.below(100)}, Rank{0}, {}, {}};
  view.committed = before != nullptr && random.below(2) == 0 ? before->committed : view.committed;
  std::uint64_t newest = 0;
  if (before != nullptr) {
    for (const ViewMember& member : before->members) {
      newest = value(member.id);
      if (random.below(4) != 0) {
        view.members.push_back({member.id, member.address, {}, 0, 0, {}});
      }
    }
  }
  for (std::uint64_t n = random.below(5) + (view.members.empty() ? 1 : 0); n > 0; --n) {
    newest += 1 + random.below(3);
    view.members.push_back({MemberId{newest}, "host:" + std::to_string(newest), {}, 0, 0, {}});
  }
  std::uint32_t first = 0;
  for (std::size_t rank = 0; rank < view.members.size(); ++rank) {
    ViewMember& member = view.members[rank];
    if (rank > 0 && random.below(8) == 0) {
      member.observes = ViewId{1 + random.below(9)};
      continue;
    }
    member.first = random.below(10) == 0 ? static_cast<std::uint32_t>(random.below(50)) : first;
    member.count = static_cast<std::uint32_t>(random.below(4));
    member.first_step = MicrobatchSet::range(member.first, member.count);
    const ViewMember* old = before == nullptr ? nullptr : member_of(*before, member.id);
    if (old != nullptr && random.below(2) == 0) {
      member.first_step = due_after(*before, *old, view.committed);
    }
    if (random.below(3) == 0) {
      member.first_step.add(static_cast<std::uint32_t>(random.below(400)));
    }
    first = member.first + member.count;
  }
  for (std::size_t rank = 1; rank < view.members.size() && !view.has_observers(); ++rank) {
    if (random.below(4) == 0) {
      view.behind.push_back(static_cast<Rank>(rank));
    }
  }
  return view;
}

TEST(ViewDelta, BringsWhoHasTheViewBeforeToTheNewOneOverTheWire) {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random{CounterRandom(seed).split("views")};
    const View before = random_view(random, ViewId{7}, nullptr);
    const View after = random_view(random, ViewId{8}, &before);
    const Bytes bytes = encode(NewViewDelta{make_delta(before, after)});
    const Result<Message> message = decode(bytes);
    ASSERT_TRUE(message.ok());
    EXPECT_EQ(encode(message.value()), bytes);
    const Result<View> view = apply_delta(before, std::get<NewViewDelta>(message.value()).delta);
    ASSERT_TRUE(view.ok());
    EXPECT_EQ(view.value(), after);
  }
}

TEST(ViewDelta, AWrongBaseIsFoundOut) {
  RandomStream random{CounterRandom(3)};
  const View before = random_view(random, ViewId{7}, nullptr);
  const View after = random_view(random, ViewId{8}, &before);
  const ViewDelta delta = make_delta(before, after);
  View other = before;
  other.members.back().address += "x";
  if (member_of(after, other.members.back().id) != nullptr) {
    EXPECT_FALSE(apply_delta(other, delta).ok());
  }
  other = before;
  other.id = ViewId{6};
  EXPECT_FALSE(apply_delta(other, delta).ok());
  EXPECT_FALSE(apply_delta(View{}, delta).ok());
  ViewDelta changed = delta;
  changed.key += 1;
  EXPECT_FALSE(apply_delta(before, changed).ok());
}

TEST(ViewDelta, OfALargeViewIsSmall) {
  CoordinatorOptions options;
  options.microbatches = 4000;
  options.initial_workers = 1000;
  CoordinatorHarness job(options);
  for (int i = 0; i < 1000; ++i) {
    job.join();
  }
  const std::size_t whole = encode(NewView{job.view()}).size();
  job.clear();
  job.give(coordinator_event::ConnectionLost{MemberId{500}, "reset"});
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    job.stopped(MemberId{i}, 0);
  }
  const auto deltas = job.sent<NewViewDelta>(MemberId{1});
  ASSERT_EQ(deltas.size(), 1u);
  EXPECT_LT(encode(deltas[0]).size() * 50, whole);
  EXPECT_TRUE(job.sent<NewView>(MemberId{1}).empty());
}

/// One of 1000 members is lost while every member holds one or two of its four microbatches of the
/// step after `committed`. Returns the delta that the remaining members receive, and checks that it
/// leads to the new view.
ViewDelta lose_in_the_middle_of_a_step(CoordinatorHarness& job, MemberId lost,
                                       std::uint64_t committed) {
  const View before = job.view();
  job.clear();
  job.give(coordinator_event::ConnectionLost{lost, "reset"});
  for (const ViewMember& member : before.members) {
    if (member.id != lost) {
      const std::uint32_t first = due_after(before, member, Step{committed}).runs().front().first;
      const auto held = static_cast<std::uint32_t>(1 + value(member.id) % 2);
      job.stopped(member.id, committed, MicrobatchSet::range(first, held));
    }
  }
  const auto deltas = job.sent<NewViewDelta>(MemberId{1});
  EXPECT_EQ(deltas.size(), 1u);
  const Result<View> view = apply_delta(before, deltas.at(0).delta);
  EXPECT_TRUE(view.ok() && view.value() == job.view());
  return deltas.at(0).delta;
}

TEST(ViewDelta, OfALossInTheMiddleOfAStepNamesOnlyWhatMoves) {
  CoordinatorOptions options;
  options.microbatches = 4000;
  options.initial_workers = 1000;
  CoordinatorHarness job(options);
  for (int i = 0; i < 1000; ++i) {
    job.join();
  }
  const ViewDelta first = lose_in_the_middle_of_a_step(job, MemberId{500}, 0);
  EXPECT_LT(encode(NewViewDelta{first}).size(), 200u);
  const View view = job.view();
  for (const ViewMember& member : view.members) {
    job.start(member.id, 1);
  }
  // In the second step every member has its range, which differs from its work in the first.
  const ViewDelta second = lose_in_the_middle_of_a_step(job, MemberId{700}, 1);
  EXPECT_LT(encode(NewViewDelta{second}).size(), 200u);
  // A further loss in the same step: every member keeps its microbatches of that step.
  const ViewDelta third = lose_in_the_middle_of_a_step(job, MemberId{800}, 1);
  EXPECT_LT(encode(NewViewDelta{third}).size(), 400u);  // some members have two runs now
}

TEST(ViewDelta, ANewcomerHasNothingThatItHadBefore) {
  RandomStream random{CounterRandom(4)};
  const View before = random_view(random, ViewId{7}, nullptr);
  View after = before;
  after.id = ViewId{8};
  after.members.push_back({MemberId{99}, "new", MicrobatchSet::range(5, 1), 0, 1, {}});
  ViewDelta delta = make_delta(before, after);
  delta.shares.back() = {ViewDelta::FirstStep::kAsBefore, {}, 0, 1, {}};
  EXPECT_FALSE(apply_delta(before, delta).ok());
}

TEST(ViewDelta, WhoCannotUseItAsksForTheWholeView) {
  CoordinatorOptions options;
  options.initial_workers = 2;
  options.delta_from_members = 1;
  CoordinatorHarness job(options);
  const MemberId one = job.join();
  const MemberId two = job.join();
  job.give(coordinator_event::ConnectionLost{two, "reset"});
  job.stopped(one, 0);
  ASSERT_EQ(job.sent<NewViewDelta>(one).size(), 1u);
  const std::size_t before = job.sent<NewView>(one).size();
  job.say(one, ViewWanted{job.view().id});
  ASSERT_EQ(job.sent<NewView>(one).size(), before + 1);
  EXPECT_EQ(job.sent<NewView>(one).back().view, job.view());
}

TEST(ViewDelta, WhoAsksForAViewThatMustEndIsToldSoAgain) {
  CoordinatorOptions options;
  options.initial_workers = 3;
  options.delta_from_members = 1;
  CoordinatorHarness job(options);
  const MemberId one = job.join();
  const MemberId two = job.join();
  const MemberId three = job.join();
  job.give(coordinator_event::ConnectionLost{three, "reset"});
  job.stopped(one, 0);
  job.stopped(two, 0);
  const ViewId ends = job.view().id;
  job.give(coordinator_event::ConnectionLost{two, "reset"});
  job.clear();
  job.say(one, ViewWanted{ends});  // it received Stop before it had the view
  ASSERT_EQ(job.sent<NewView>(one).size(), 1u);
  ASSERT_EQ(job.sent<Stop>(one).size(), 1u);
  EXPECT_EQ(job.sent<Stop>(one)[0].view, ends);
  EXPECT_FALSE(job.sent<Stop>(one)[0].at_boundary);
}

}  // namespace
}  // namespace mayfly::elastic
