#include "collectives/nccl/nccl_transport.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>

#include "tests/unit/collectives/nccl/fake_members.hpp"

namespace mayfly::collectives {
namespace {

using test::FakeMembers;
using test::far;
using test::on_all;
using test::until;

Error error_of(const Result<std::unique_ptr<Group>>& formed) {
  EXPECT_FALSE(formed.ok());
  return formed.ok() ? Error{Errc::kNotFound, "it was formed"} : formed.error();
}

TEST(NcclTransport, LoadsTheKernelsOnceByACommunicatorOfOneRank) {
  test::reset_fake_counts();
  FakeMembers members(1);
  EXPECT_EQ(test::fake_counts().inits, 1);
  EXPECT_EQ(test::fake_counts().operations, 1);
  EXPECT_EQ(test::fake_counts().live_comms, 0);
}

TEST(NcclTransport, SaysWhyTheDeviceCannotBeUsed) {
  auto fake = test::make_fake_nccl();
  fake->script.init_answer = NcclStatus::kDeviceError;
  const auto made = make_nccl_transport(std::move(fake), "nccl:test");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Errc::kIo);
  EXPECT_NE(made.error().detail.find("as scripted"), std::string::npos) << made.error().detail;
}

TEST(NcclTransport, AGroupOfOneNeedsNoStore) {
  FakeMembers members(1);
  GroupSpec alone = members.spec(1, 0, 1);
  alone.store = nullptr;
  const auto group = members.transports[0]->form(alone, far());
  ASSERT_TRUE(group.ok());
  std::int32_t one = 1;
  const auto work = group.value()->all_reduce(&one, 1, DataType::kInt32, ReduceOp::kSum);
  EXPECT_TRUE(work->wait(far()).ok());
  EXPECT_EQ(one, 1);
}

TEST(NcclTransport, SeveralNeedAStore) {
  FakeMembers members(2);
  GroupSpec spec = members.spec(1, 0, 2);
  spec.store = nullptr;
  EXPECT_EQ(error_of(members.transports[0]->form(spec, far())).code, Errc::kInvalidInput);
}

TEST(NcclTransport, ADeathWhileFormingEndsItWhereNcclSeesIt) {
  FakeMembers members(3);
  test::reset_fake_counts();
  on_all(3, [&](std::uint32_t rank) {
    if (rank == 1) {  // never forms; once 0 and 2 are forming, 2 gives up
      until([] { return test::fake_counts().inits == 2; });
      members.transports[2]->give_up_on(ViewId{1});
      return;
    }
    const Errc code =
        error_of(members.transports[rank]->form(members.spec(1, rank, 3), far())).code;
    EXPECT_EQ(code, rank == 0 ? Errc::kPeerLost : Errc::kAborted);
  });
}

TEST(NcclTransport, ASilentDeathWhileFormingEndsAtTheDeadlineAndNamesTheMissing) {
  FakeMembers members(3);
  members.store.answers_after = milliseconds(5);
  members.fakes[0]->script.sees_deaths = false;
  on_all(2, [&](std::uint32_t rank) {
    if (rank == 1) {
      EXPECT_FALSE(members.transports[1]->form(members.spec(1, 1, 3), far()).ok());
      return;
    }
    until([&] { return members.store.has("here/1"); });
    const Error error = error_of(
        members.transports[0]->form(members.spec(1, 0, 3), monotonic_now() + milliseconds(30)));
    EXPECT_EQ(error.code, Errc::kDeadline);
    EXPECT_EQ(error.culprit, MemberId{102});
    members.transports[1]->give_up_on(ViewId{1});
  });
  // The next view is not disturbed.
  auto groups = members.form(2, 2);
  on_all(2, [&](std::uint32_t rank) { EXPECT_TRUE(groups[rank]->barrier()->wait(far()).ok()); });
}

TEST(NcclTransport, NobodyIsNamedIfAllHaveArrived) {
  FakeMembers members(2);
  members.store.answers_after = milliseconds(5);
  for (test::FakeNccl* const fake : members.fakes) {
    fake->script.init_polls = std::numeric_limits<int>::max();
    fake->script.sees_deaths = false;
  }
  on_all(2, [&](std::uint32_t rank) {
    if (rank == 0) {
      until([&] { return members.store.has("here/1"); });
    }
    const Error error = error_of(members.transports[rank]->form(
        members.spec(1, rank, 2), monotonic_now() + milliseconds(100)));
    EXPECT_EQ(error.code, Errc::kDeadline);
    EXPECT_EQ(error.culprit, std::nullopt);
    EXPECT_NE(error.detail.find("NCCL_SOCKET_IFNAME"), std::string::npos) << error.detail;
  });
}

TEST(NcclTransport, NobodyIsNamedIfTheStoreDoesNotAnswer) {
  FakeMembers members(2);
  members.store.answers_after = seconds(60);
  members.fakes[0]->script.sees_deaths = false;
  const Error error = error_of(
      members.transports[0]->form(members.spec(1, 0, 2), monotonic_now() + milliseconds(20)));
  EXPECT_EQ(error.code, Errc::kDeadline);
  EXPECT_EQ(error.culprit, std::nullopt);
}

TEST(NcclTransport, RankZeroThatDoesNotComeIsNamed) {
  FakeMembers members(2);
  const Error error = error_of(
      members.transports[1]->form(members.spec(1, 1, 2), monotonic_now() + milliseconds(20)));
  EXPECT_EQ(error.code, Errc::kDeadline);
  EXPECT_EQ(error.culprit, MemberId{100});
}

TEST(NcclTransport, AFailedInitIsReportedAndTheNextViewForms) {
  FakeMembers members(2);
  members.fakes[0]->script.init_answer = NcclStatus::kSystemError;
  const Error error = error_of(members.transports[0]->form(members.spec(1, 0, 2), far()));
  EXPECT_EQ(error.code, Errc::kIo);
  EXPECT_EQ(error.culprit, std::nullopt) << "the system's error is this host's";
  members.fakes[0]->script = {};
  EXPECT_EQ(members.form(2, 2).size(), 2U);
}

}  // namespace
}  // namespace mayfly::collectives
