#include "collectives/parameter_server/admission.hpp"

#include <gtest/gtest.h>

namespace mayfly::parameter_server {
namespace {

constexpr std::uint32_t kAdmittingShard = 5;

ShardView view_of(std::uint64_t id, std::set<MemberId> workers) {
  return {ViewId{id}, 100 + id, std::move(workers), ShardRole::kLeads, "", {}};
}

Header greeting_of(MessageType type, std::uint64_t view) {
  Header greeting;
  greeting.type = type;
  greeting.view = view;
  greeting.key = 100 + view;
  greeting.worker = 1;
  greeting.shard = kAdmittingShard;
  return greeting;
}

TEST(Admission, LetsAWorkerWaitUntilItsViewIsKnown) {
  Admission admission(kAdmittingShard);
  const Header hello = greeting_of(MessageType::kHello, 2);
  EXPECT_EQ(admission.judge(hello), AdmissionVerdict::kWait);
  admission.set_view(view_of(1, {MemberId{1}}), ShardRole::kLeads);
  EXPECT_EQ(admission.judge(hello), AdmissionVerdict::kWait);
  admission.set_view(view_of(2, {MemberId{1}}), ShardRole::kLeads);
  EXPECT_EQ(admission.judge(hello), AdmissionVerdict::kAdmit);
  EXPECT_EQ(admission.view(), ViewId{2});
}

TEST(Admission, RefusesAWrongKeyAndWorkersThatAreNotOfTheNewestView) {
  Admission admission(kAdmittingShard);
  admission.set_view(view_of(1, {MemberId{1}}), ShardRole::kLeads);
  Header hello = greeting_of(MessageType::kHello, 1);
  hello.key = 7;
  EXPECT_EQ(admission.judge(hello), AdmissionVerdict::kRefuse);
  hello.key = 101;
  EXPECT_EQ(admission.judge(hello), AdmissionVerdict::kAdmit);
  admission.set_view(view_of(2, {MemberId{2}}), ShardRole::kLeads);
  EXPECT_EQ(admission.judge(hello), AdmissionVerdict::kRefuse);
  hello.worker = 2;
  EXPECT_EQ(admission.judge(hello), AdmissionVerdict::kAdmit) << "it may not know the second view";
}

TEST(Admission, OfALeaderIsToItsOwnFollowerOnly) {
  Admission admission(kAdmittingShard);
  const Header follow = greeting_of(MessageType::kFollow, 1);
  admission.set_view(view_of(1, {MemberId{1}}), ShardRole::kFollows);
  EXPECT_EQ(admission.judge(follow), AdmissionVerdict::kAdmit);
  EXPECT_EQ(admission.judge(greeting_of(MessageType::kHello, 1)), AdmissionVerdict::kRefuse)
      << "followers have no workers";
  Header other = follow;
  other.shard = kAdmittingShard + 1;
  EXPECT_EQ(admission.judge(other), AdmissionVerdict::kRefuse);
  admission.set_view(view_of(2, {MemberId{1}}), ShardRole::kLeads);
  EXPECT_EQ(admission.judge(follow), AdmissionVerdict::kRefuse) << "it leads itself";
}

}  // namespace
}  // namespace mayfly::parameter_server
