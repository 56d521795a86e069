#include "engine/config/bind_host.hpp"

#include <gtest/gtest.h>

namespace mayfly::engine {
namespace {

TEST(ListeningHost, AnInterfaceStandsForItsAddress) {
  const Result<std::string> host = listening_host("lo");
  ASSERT_TRUE(host.ok());
  EXPECT_EQ(host.value(), "127.0.0.1");
}

TEST(ListeningHost, AddressesAndNamesStayAsTheyAre) {
  for (const std::string host : {"127.0.0.1", "::1", "10.0.0.7", "worker-3.example"}) {
    EXPECT_EQ(listening_host(host).value(), host);
  }
}

TEST(ListeningHost, AnAddressMayStandInBrackets) {
  EXPECT_EQ(listening_host("[::1]").value(), "::1");
  EXPECT_EQ(listening_host("[fe80::1]").value(), "fe80::1");
  EXPECT_EQ(listening_host("[]").value(), "[]");
}

TEST(ReachableHost, AllAddressesAreNone) {
  for (const std::string host : {"0.0.0.0", "0", "::", "[::]", "0:0:0:0:0:0:0:0"}) {
    const Result<void> checked = check_reachable_host(host);
    ASSERT_FALSE(checked.ok()) << host;
    EXPECT_EQ(checked.error().code, Errc::kInvalidInput);
    EXPECT_EQ(checked.error().detail.find("--bind-host " + host + ": "), 0U);
  }
  for (const std::string host :
       {"127.0.0.1", "::1", "[::1]", "10.0.0.7", "worker-3.example", "lo"}) {
    EXPECT_TRUE(check_reachable_host(host).ok()) << host;
  }
}

}  // namespace
}  // namespace mayfly::engine
