#include "collectives/tcp/tcp_address.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace mayfly::collectives {
namespace {

TEST(TcpAddress, SurvivesTheTripThroughText) {
  for (const TcpAddress& address :
       {TcpAddress{"127.0.0.1", 4321, "", ""}, TcpAddress{"fe80::1", 1, "", ""},
        TcpAddress{"10.0.0.7", 65535, "@mayfly-1-ab", "0123abcd"},
        TcpAddress{"::1", 80, "/tmp/some where/s", "ff"}}) {
    const Result<TcpAddress> parsed = parse_tcp_address(to_string(address));
    const auto with_store = parse_tcp_address(to_string(address) + ";images:[::1]:7/1f");
    ASSERT_TRUE(with_store.ok()) << "the field of others is skipped";
    EXPECT_EQ(to_string(with_store.value()), to_string(address));
    ASSERT_TRUE(parsed.ok()) << to_string(address);
    EXPECT_EQ(parsed.value().host, address.host);
    EXPECT_EQ(parsed.value().port, address.port);
    EXPECT_EQ(parsed.value().unix_name, address.unix_name);
    EXPECT_EQ(parsed.value().host_id, address.host_id);
  }
}

TEST(TcpAddress, IsWrittenAsDocumented) {
  EXPECT_EQ(to_string(TcpAddress{"::1", 80, "@n", "ff"}), "tcp:[::1]:80;unix:@n;host:ff");
}

// The first network namespace has the same number on all hosts with the same kernel.
TEST(HostId, DiffersWhereOnlyTheStartOfTheKernelDoes) {
  const std::string one = host_id_of("c5de24ba-6031-40c3-a9ed-6f4d27851f90\n", "net:[4026531840]");
  EXPECT_EQ(one.size(), 16U);
  EXPECT_NE(one, host_id_of("8fe9b9fc-7b1e-4a0f-8d09-2f6ab4c6d1aa\n", "net:[4026531840]"));
  EXPECT_NE(one, host_id_of("c5de24ba-6031-40c3-a9ed-6f4d27851f90\n", "net:[4026532281]"));
  EXPECT_EQ(host_id_of("", "net:[4026531840]"), "");
  EXPECT_EQ(host_id_of("c5de24ba-6031-40c3-a9ed-6f4d27851f90\n", ""), "");
}

TEST(HostId, IsMadeOfWhatTheSystemSays) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::error_code hidden;
  const std::string network = std::filesystem::read_symlink("/proc/self/ns/net", hidden);
  if (!std::getline(file, boot) || network.empty()) {
    GTEST_SKIP() << "the system does not tell";
  }
  EXPECT_EQ(this_host_id(), host_id_of(boot + "\n", network));
}

TEST(TcpAddress, RefusesWhatIsNone) {
  for (const char* text : {"", "tcp:", "tcp:host", "tcp::80", "tcp:host:0", "tcp:host:65536",
                           "tcp:host:8x", "unix:@a;host:b", "udp:host:80", "tcp:h:80;what:is"}) {
    const Result<TcpAddress> parsed = parse_tcp_address(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, Errc::kInvalidInput);
  }
}

}  // namespace
}  // namespace mayfly::collectives
