#include "elastic/net/member_place.hpp"

#include <gmock/gmock.h>

namespace mayfly::elastic {
namespace {

using ::testing::HasSubstr;

MemberPlace at(const std::string& host, const std::string& address) {
  return {host, address, "name-of-" + host};
}

TEST(MemberPlace, LoopbackAddressesMeanTheirOwnHost) {
  for (const char* address : {"tcp:127.0.0.1:80", "tcp:127.0.1.1:80;unix:@x;host:7", "tcp:[::1]:80",
                              "gloo:127.0.0.1", "gloo:::1"}) {
    EXPECT_TRUE(means_own_host(address)) << address;
  }
  for (const char* address : {"tcp:10.0.0.1:80", "tcp:[fe80::1]:80", "gloo:10.0.0.1", "mpi:77:0",
                              "", "ps", "tcp:", "tcp:127.example:80", "tcp:[:80"}) {
    EXPECT_FALSE(means_own_host(address)) << address;
  }
}

TEST(MemberPlace, OnOneHostLoopbackIsFine) {
  const MemberPlace local = at("10.0.0.1", "tcp:127.0.0.1:1");
  EXPECT_FALSE(reason_out_of_reach(local, {}));
  EXPECT_FALSE(reason_out_of_reach(local, {local, at("10.0.0.1", "tcp:10.0.0.1:2")}));
}

TEST(MemberPlace, ANewcomerThatOthersCannotReachIsTold) {
  const auto reason = reason_out_of_reach(at("10.0.0.2", "tcp:127.0.0.1:5;unix:@x"),
                                          {at("10.0.0.1", "tcp:10.0.0.1:1")});
  ASSERT_TRUE(reason);
  EXPECT_THAT(*reason, HasSubstr("this worker on name-of-10.0.0.2 listens at tcp:127.0.0.1:5,"));
  EXPECT_THAT(*reason, HasSubstr("--bind-host"));
}

TEST(MemberPlace, ANewcomerThatCannotReachAMemberIsToldWhich) {
  const auto reason =
      reason_out_of_reach(at("10.0.0.2", "tcp:10.0.0.2:5"), {at("this host", "tcp:127.0.0.1:1")});
  ASSERT_TRUE(reason);
  EXPECT_THAT(*reason, HasSubstr("a member of this job on name-of-this host listens"));
}

TEST(MemberPlace, NamesOfHostsAreTextOfOneLine) {
  EXPECT_EQ(printable("node-7.example_1"), "node-7.example_1");
  EXPECT_EQ(printable("a\nb \x1b[31m"), "a?b???31m");
  EXPECT_EQ(printable(std::string(300, 'x')).size(), 64U);
}

}  // namespace
}  // namespace mayfly::elastic
