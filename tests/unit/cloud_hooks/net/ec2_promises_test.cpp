#include "cloud_hooks/ec2/ec2_promises.hpp"

#include <gtest/gtest.h>

namespace mayfly::cloud_hooks {
namespace {

constexpr Instant kBegin{1'000'000'000'000};

ServerStatus server(const std::string& id) {
  ServerStatus status;
  status.id = id;
  status.state = ServerState::kStarting;
  return status;
}

TEST(Ec2Promises, HoldUntilTheServerIsSeenOrLongOverdue) {
  Ec2Promises promises;
  promises.add(kBegin, server("i-1"));
  promises.add(kBegin, server("i-2"));
  EXPECT_TRUE(promises.find(kBegin + seconds(119), "i-1").has_value());
  EXPECT_FALSE(promises.find(kBegin + seconds(120), "i-1").has_value());
  promises.known("i-1");
  EXPECT_FALSE(promises.find(kBegin, "i-1").has_value());
  ASSERT_EQ(promises.all(kBegin).size(), 1U);
  EXPECT_EQ(promises.all(kBegin).front().id, "i-2");
  EXPECT_TRUE(promises.all(kBegin + seconds(120)).empty());
}

}  // namespace
}  // namespace mayfly::cloud_hooks
