#include "collectives/parameter_server/followed_leader.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace mayfly::parameter_server {
namespace {

constexpr std::size_t kFollowedFloats = 4;
constexpr std::uint64_t kFollowedBytes = kFollowedFloats * sizeof(float);

Header entry_of(MessageType type, std::uint64_t number, std::uint64_t payload_bytes = 0) {
  Header header;
  header.type = type;
  header.entry = number;
  header.worker = 3;
  header.count = 1;
  header.payload_bytes = payload_bytes;
  return header;
}

class FollowedLeaderTest : public testing::Test {
 protected:
  FollowedLeader leader{2, kFollowedBytes};
  PushedGradients gradients{kFollowedFloats};

  /// A push with this gradient arrives.
  Result<std::optional<FollowedLeader::Entry>> push(std::uint64_t number, float value) {
    const Header header = entry_of(MessageType::kPush, number, kFollowedBytes);
    const PayloadTarget target = leader.expect(header, gradients).value();
    const std::vector<float> values(kFollowedFloats, value);
    std::memcpy(target[0].data(), values.data(), kFollowedBytes);
    return leader.take(header);
  }
};

TEST_F(FollowedLeaderTest, GivesEachEntryOnceWithItsGradient) {
  const auto first = push(1, 5);
  ASSERT_TRUE(first.ok() && first.value());
  EXPECT_EQ(first.value()->event.kind, ShardEventKind::kPush);
  EXPECT_EQ(first.value()->event.push.worker, MemberId{3});
  EXPECT_EQ(first.value()->gradient.span()[0], 5);
  const auto again = push(1, 6);
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again.value()) << "sent again over a new connection";
  const auto second = push(2, 7);
  ASSERT_TRUE(second.ok() && second.value());
  EXPECT_EQ(second.value()->gradient.span()[0], 7);
  EXPECT_EQ(first.value()->gradient.span()[0], 5);
}

TEST_F(FollowedLeaderTest, APushThatItsLeaderForgotHasNoGradient) {
  (void)push(1, 5);
  const auto repeat = leader.take(entry_of(MessageType::kPush, 2));
  ASSERT_TRUE(repeat.ok() && repeat.value());
  EXPECT_TRUE(repeat.value()->gradient.span().empty());
}

TEST_F(FollowedLeaderTest, TakesRostersAndStragglersFromTheirPayloads) {
  const std::vector<std::uint64_t> ids = {4, 9};
  const Header roster = entry_of(MessageType::kRoster, 1, 2 * sizeof(std::uint64_t));
  const PayloadTarget target = leader.expect(roster, gradients).value();
  std::memcpy(target[0].data(), ids.data(), 2 * sizeof(std::uint64_t));
  const auto taken = leader.take(roster);
  ASSERT_TRUE(taken.ok() && taken.value());
  EXPECT_EQ(taken.value()->event.kind, ShardEventKind::kWorkers);
  EXPECT_EQ(taken.value()->event.workers, (std::set<MemberId>{MemberId{4}, MemberId{9}}));
  const auto stragglers = leader.take(entry_of(MessageType::kStragglers, 2));
  ASSERT_TRUE(stragglers.ok() && stragglers.value());
  EXPECT_EQ(stragglers.value()->event.kind, ShardEventKind::kStragglers);
}

TEST_F(FollowedLeaderTest, RefusesGapsAndMessagesThatLeadersDoNotSend) {
  EXPECT_FALSE(leader.take(entry_of(MessageType::kHold, 2)).ok()) << "the first is missing";
  EXPECT_FALSE(leader.take(entry_of(MessageType::kTaken, 1)).ok());
  Header push = entry_of(MessageType::kPush, 1, kFollowedBytes - 4);
  EXPECT_FALSE(leader.expect(push, gradients).ok());
  push.payload_bytes = kFollowedBytes;
  push.count = 0;
  EXPECT_FALSE(leader.expect(push, gradients).ok());
  Header shared = entry_of(MessageType::kPush, 1, kFollowedBytes);
  shared.slot = 1;
  EXPECT_FALSE(leader.expect(shared, gradients).ok());
  EXPECT_FALSE(leader.expect(entry_of(MessageType::kRoster, 1, 12), gradients).ok());
  EXPECT_FALSE(
      leader.expect(entry_of(MessageType::kRoster, 1, 2 * kRosterBytesMax), gradients).ok());
}

TEST_F(FollowedLeaderTest, AcknowledgesOnceAndAgainToANewConnection) {
  EXPECT_FALSE(leader.acknowledgement());
  EXPECT_EQ(leader.welcome().entry, 0U);
  (void)push(1, 5);
  (void)push(2, 6);
  const std::optional<Header> taken = leader.acknowledgement();
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->type, MessageType::kTaken);
  EXPECT_EQ(taken->entry, 2U);
  EXPECT_EQ(taken->shard, 2U);
  EXPECT_FALSE(leader.acknowledgement());
  EXPECT_EQ(leader.welcome().entry, 2U);
}

}  // namespace
}  // namespace mayfly::parameter_server
