#include "elastic/core/view.hpp"

#include <gtest/gtest.h>

namespace mayfly::elastic {
namespace {

ViewMember member_with(std::uint32_t first, std::uint32_t count) {
  ViewMember member;
  member.id = MemberId{3};
  member.first_step = MicrobatchSet::range(first, count);
  member.first = first;
  member.count = count;
  return member;
}

View view_after(Step committed, const ViewMember& member) {
  View view;
  view.id = ViewId{7};
  view.committed = committed;
  view.members = {member};
  return view;
}

TEST(EarlyWork, AMemberWithTheStateBeginsItsShareBeforeTheGroupStands) {
  ViewMember self = member_with(4, 2);
  self.first_step.add(9);  // of a lost member
  EXPECT_EQ(work_before_group(view_after(Step{5}, self), self, Step{5}), self.first_step);
}

TEST(EarlyWork, AMemberThatMissedTheLastStepBeginsNothing) {
  const ViewMember self = member_with(4, 2);
  EXPECT_TRUE(work_before_group(view_after(Step{5}, self), self, Step{4}).empty());
  EXPECT_TRUE(work_before_group(view_after(Step{5}, self), self, Step{}).empty());
}

TEST(EarlyWork, AMemberThatIsAheadOfAJobThatStartsOverBeginsNothing) {
  const ViewMember self = member_with(4, 2);
  EXPECT_TRUE(work_before_group(view_after(Step{5}, self), self, Step{6}).empty());
}

TEST(EarlyWork, AnObserverBeginsNothingEvenIfItsOwnStateIsOfThatStep) {
  ViewMember self = member_with(0, 0);
  self.observes = ViewId{7};
  EXPECT_TRUE(work_before_group(view_after(Step{0}, self), self, Step{0}).empty());
}

TEST(EarlyWork, AtABoundaryAMemberThatStaysBeginsOneMicrobatchForEachThread) {
  const ViewMember self = member_with(4, 3);
  EXPECT_EQ(work_at_boundary(self, true, 1), MicrobatchSet::range(4, 1));
  EXPECT_EQ(work_at_boundary(self, true, 2), MicrobatchSet::range(4, 2));
  EXPECT_EQ(work_at_boundary(self, true, 8), MicrobatchSet::range(4, 3)) << "all that is its own";
}

TEST(EarlyWork, AtABoundaryAMemberThatLeavesBeginsNothing) {
  EXPECT_TRUE(work_at_boundary(member_with(4, 3), false, 2).empty());
}

TEST(EarlyWork, AtABoundaryAnObserverBeginsNothing) {
  ViewMember self = member_with(0, 0);
  self.observes = ViewId{7};
  EXPECT_TRUE(work_at_boundary(self, true, 2).empty());
}

}  // namespace
}  // namespace mayfly::elastic
