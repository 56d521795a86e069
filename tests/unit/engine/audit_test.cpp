#include "engine/training/member_checks.hpp"

#include <gtest/gtest.h>

#include <set>

namespace mayfly::engine {
namespace {

using elastic::MicrobatchSet;
using elastic::View;

constexpr std::uint32_t kMicrobatches = 12;

/// Three workers with four microbatches each, and an observer.
View view_of_three() {
  View view;
  for (std::uint32_t r = 0; r < 4; ++r) {
    elastic::ViewMember member;
    member.id = MemberId{r + 1};
    if (r < 3) {
      member.first = 4 * r;
      member.count = 4;
      member.first_step = MicrobatchSet::range(member.first, member.count);
    } else {
      member.observes = ViewId{1};
    }
    view.members.push_back(member);
  }
  return view;
}

TEST(Audit, NoStepIsAuditedUnlessAskedFor) {
  EXPECT_FALSE(audited_microbatch(Step{10}, 0, 1, kMicrobatches).has_value());
  EXPECT_FALSE(audited_microbatch(Step{10}, 3, 1, kMicrobatches).has_value());
  EXPECT_TRUE(audited_microbatch(Step{9}, 3, 1, kMicrobatches).has_value());
}

TEST(Audit, EveryMicrobatchHasItsTurn) {
  std::set<std::uint32_t> seen;
  for (std::uint64_t step = 1; step <= 200; ++step) {
    seen.insert(audited_microbatch(Step{step}, 1, 7, kMicrobatches).value());
  }
  EXPECT_EQ(seen.size(), kMicrobatches);
  EXPECT_LT(*seen.rbegin(), kMicrobatches);
}

TEST(Audit, EveryOtherWorkerLooksInTurnAndNoObserver) {
  const View view = view_of_three();
  std::set<Rank> seen;
  for (std::uint64_t step = 1; step <= 10; ++step) {
    seen.insert(auditor_of(view, 5, Step{step}, false).value());
  }
  EXPECT_EQ(seen, (std::set<Rank>{Rank{0}, Rank{2}}));
}

TEST(Audit, InAViewsFirstStepWhoeverKeptTheMicrobatchIsNotAsked) {
  View view = view_of_three();
  view.members[2].first_step = MicrobatchSet::range(5, 1);
  view.members[1].first_step = MicrobatchSet::range(8, 4);
  for (std::uint64_t step = 1; step <= 10; ++step) {
    EXPECT_NE(auditor_of(view, 5, Step{step}, true), Rank{2});
  }
}

TEST(Audit, AloneThereIsNobodyToAsk) {
  View view = view_of_three();
  view.members.erase(view.members.begin(), view.members.begin() + 2);
  EXPECT_FALSE(auditor_of(view, 9, Step{3}, false).has_value());
}

}  // namespace
}  // namespace mayfly::engine
