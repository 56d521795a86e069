#include "engine/processes/network_interface.hpp"

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

}  // namespace
}  // namespace mayfly::engine
