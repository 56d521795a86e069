#include "elastic/net/own_addresses.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>

#include "base/unique_fd.hpp"
#include "elastic/net/first_session.hpp"

namespace mayfly::elastic {
namespace {

using ::testing::HasSubstr;

TEST(OwnAddresses, LoopbackIsKnownByNumber) {
  for (const char* address : {"127.0.0.1", "127.0.1.1", "127.255.0.9", "::1"}) {
    EXPECT_TRUE(is_loopback(address)) << address;
  }
  for (const char* address : {"128.0.0.1", "10.0.0.1", "::", "fe80::1", "localhost", ""}) {
    EXPECT_FALSE(is_loopback(address)) << address;
  }
}

TEST(OwnAddresses, NoneIsLoopback) {
  for (const std::string& address : own_addresses()) {
    EXPECT_FALSE(is_loopback(address)) << address;
  }
}

TEST(OwnAddresses, TheDefaultIsOneOfThem) {
  const std::vector<std::string> own = own_addresses();
  const std::string address = default_address();
  EXPECT_TRUE(own.empty() ? address == "127.0.0.1"
                          : std::find(own.begin(), own.end(), address) != own.end())
      << address;
}

TEST(AddressTowards, ALoopbackCoordinatorIsReachedFromLoopback) {
  EXPECT_EQ(address_towards({{"127.0.0.1", 7000}}), "127.0.0.1");
  EXPECT_TRUE(is_loopback(address_towards({{"localhost", 7000}})));
}

TEST(AddressTowards, AnOwnAddressIsReachedFromItself) {
  for (const std::string& own : own_addresses()) {
    EXPECT_EQ(address_towards({{own, 7000}}), own);
    // Whichever of the list it is: a loopback address would be of no use to other hosts.
    EXPECT_EQ(address_towards({{"127.0.0.1", 7000}, {own, 7000}}), own);
  }
}

TEST(AddressTowards, NamesThatNobodyKnowsAreLeftOut) {
  EXPECT_EQ(address_towards({{"no.such.host.invalid", 7000}, {"127.0.0.1", 7000}}), "127.0.0.1");
  EXPECT_EQ(address_towards({}), "127.0.0.1");
}

TEST(AddressesOf, NumbersAndLocalhostStayAsTheyAre) {
  EXPECT_EQ(addresses_of("127.0.1.1").value(), std::vector<std::string>{"127.0.1.1"});
  const Result<std::vector<std::string>> local = addresses_of("localhost");
  ASSERT_TRUE(local.ok());
  for (const std::string& address : local.value()) {
    EXPECT_TRUE(is_loopback(address));
  }
}

TEST(AddressesOf, ANameThatMeansLoopbackMeansThisHost) {
  char name[256] = {};
  ASSERT_EQ(::gethostname(name, sizeof name - 1), 0);
  const Result<std::vector<std::string>> found = addresses_of(name);
  if (!found.ok() || !is_loopback(found.value().front())) {
    GTEST_SKIP() << "this host's own name is no loopback address";
  }
  for (const std::string& own : own_addresses()) {
    EXPECT_NE(std::find(found.value().begin(), found.value().end(), own), found.value().end());
  }
}

TEST(ConnectTcp, SaysWhatTheNameMeant) {
  const std::uint16_t port = [] {
    const Result<UniqueFd> listener = listen_tcp({"127.0.0.1", 0});
    return listener.ok() ? local_port(listener.value().get()) : std::uint16_t{9};
  }();
  const auto named = connect_tcp({"localhost", port}, monotonic_now() + seconds(5));
  ASSERT_FALSE(named.ok());
  EXPECT_THAT(named.error().detail, HasSubstr("127.0.0.1"));
  EXPECT_THAT(named.error().detail, HasSubstr("localhost:" + std::to_string(port) + " ("));
  const auto numeric = connect_tcp({"127.0.0.1", port}, monotonic_now() + seconds(5));
  ASSERT_FALSE(numeric.ok());
  EXPECT_EQ(numeric.error().detail,
            "cannot connect to 127.0.0.1:" + std::to_string(port) + ": Connection refused");
}

TEST(FirstSession, SaysWhatItTriesWhileItWaits) {
  const std::uint16_t port = [] {
    const Result<UniqueFd> listener = listen_tcp({"127.0.0.1", 0});
    return listener.ok() ? local_port(listener.value().get()) : std::uint16_t{9};
  }();
  ::testing::internal::CaptureStdout();
  const auto session = open_first_session({"127.0.0.1:" + std::to_string(port)}, Bytes(32), Hello{},
                                          monotonic_now() + milliseconds(2600));
  const std::string said = ::testing::internal::GetCapturedStdout();
  EXPECT_FALSE(session.ok());
  EXPECT_THAT(said, HasSubstr("Connection refused; trying on for 1 s"));
}

}  // namespace
}  // namespace mayfly::elastic
