#include "base/net/addresses.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>

#include "base/net/sockets.hpp"

namespace mayfly {
namespace {

using ::testing::HasSubstr;

TEST(Endpoint, IsHostAndPort) {
  EXPECT_EQ(parse_endpoint("node-7:4711").value().host, "node-7");
  EXPECT_EQ(parse_endpoint("node-7:4711").value().port, 4711);
  EXPECT_EQ(parse_endpoint("[::1]:80").value().host, "::1");
}

TEST(Endpoint, ReadsWhatItWrites) {
  for (const std::string text : {"127.0.0.1:1", "localhost:65535", "[fe80::1]:80"}) {
    EXPECT_EQ(to_string(parse_endpoint(text).value()), text);
  }
}

TEST(Endpoint, AnythingElseIsInvalid) {
  for (const std::string text : {"", ":", "host", "host:", ":80", "host:x", "host:80x", "host:-1",
                                 "host:65536", "::1:80", "host: 80"}) {
    EXPECT_EQ(parse_endpoint(text).error().code, Errc::kInvalidInput) << text;
  }
}

TEST(OwnAddresses, LoopbackIsKnownByNumber) {
  for (const char* address : {"127.0.0.1", "127.0.1.1", "127.255.0.9", "::1"}) {
    EXPECT_TRUE(is_loopback(address)) << address;
  }
  for (const char* address : {"128.0.0.1", "10.0.0.1", "::", "fe80::1", "localhost", ""}) {
    EXPECT_FALSE(is_loopback(address)) << address;
  }
}

TEST(OwnAddresses, WildcardsAreKnownInAnyNotation) {
  for (const char* address : {"0.0.0.0", "0", "::", "0:0::0"}) {
    EXPECT_TRUE(is_wildcard(address)) << address;
  }
  for (const char* address : {"127.0.0.1", "::1", "node-7", ""}) {
    EXPECT_FALSE(is_wildcard(address)) << address;
  }
}

TEST(OwnAddresses, AnInterfaceIsKnownByItsName) {
  EXPECT_EQ(address_of_interface("lo"), "127.0.0.1");
  EXPECT_EQ(address_of_interface("no-interface"), std::nullopt);
}

TEST(OwnAddresses, BelongToAnInterface) {
  EXPECT_EQ(interface_of("127.0.0.1"), "lo");
  EXPECT_EQ(interface_of("192.0.2.1"), "") << "an address of no host";
  EXPECT_EQ(interface_of("no.such.host.invalid"), "");
  for (const std::string& own : own_addresses()) {
    EXPECT_NE(interface_of(own), "") << own;
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
    // Wherever it is in the list: other hosts could not use a loopback address.
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
  const std::uint16_t port = bound_endpoint(listen_tcp({"127.0.0.1", 0}).value().get()).port;
  const auto named = connect_tcp({"localhost", port}, monotonic_now() + seconds(5));
  ASSERT_FALSE(named.ok());
  EXPECT_THAT(named.error().detail, HasSubstr("127.0.0.1"));
  EXPECT_THAT(named.error().detail, HasSubstr("localhost:" + std::to_string(port) + " ("));
  const auto numeric = connect_tcp({"127.0.0.1", port}, monotonic_now() + seconds(5));
  ASSERT_FALSE(numeric.ok());
  EXPECT_EQ(numeric.error().detail,
            "cannot connect to 127.0.0.1:" + std::to_string(port) + ": Connection refused");
}

}  // namespace
}  // namespace mayfly
