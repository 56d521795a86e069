#include "elastic/net/sockets.hpp"

#include <gtest/gtest.h>

namespace mayfly::elastic {
namespace {

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

}  // namespace
}  // namespace mayfly::elastic
