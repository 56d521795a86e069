#include "cloud_hooks/ec2/ec2_promises.hpp"

#include <gtest/gtest.h>

namespace mayfly::cloud_hooks {
namespace {

constexpr Instant kStart{1'000'000'000'000};

ServerStatus server(const std::string& id) {
  ServerStatus status;
  status.id = id;
  status.state = ServerState::kStarting;
  return status;
}

TEST(Ec2Promises, HoldUntilTheServerIsSeenOrLongOverdue) {
  Ec2Promises promises;
  promises.add(kStart, server("i-1"));
  promises.add(kStart, server("i-2"));
  EXPECT_TRUE(promises.find(kStart + seconds(119), "i-1").has_value());
  EXPECT_FALSE(promises.find(kStart + seconds(120), "i-1").has_value());
  promises.known("i-1");
  EXPECT_FALSE(promises.find(kStart, "i-1").has_value());
  ASSERT_EQ(promises.all(kStart).size(), 1U);
  EXPECT_EQ(promises.all(kStart).front().id, "i-2");
  EXPECT_TRUE(promises.all(kStart + seconds(120)).empty());
}

}  // namespace
}  // namespace mayfly::cloud_hooks
