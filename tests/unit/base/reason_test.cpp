#include "base/reason.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace mayfly {
namespace {

std::string reason(const std::string& text) {
  return reason_of(std::runtime_error(text));
}

TEST(ReasonOf, LeavesOutThePlaceInALibrarysSource) {
  EXPECT_EQ(reason("syntax error [boost.json:2 at ./boost/json/basic_parser_impl.hpp:635 in "
                   "function 'parse_value']"),
            "syntax error");
  EXPECT_EQ(reason("bind: Address already in use [system:98 at /usr/include/boost/asio/"
                   "detail/socket_ops.ipp:12:3 in function 'bind']"),
            "bind: Address already in use");
  EXPECT_EQ(reason("incomplete JSON [boost.json:1]"), "incomplete JSON");
  EXPECT_EQ(reason("[/build/gloo-1/gloo/transport/tcp/pair.cc:589] Read error [::1]:4711: reset"),
            "Read error [::1]:4711: reset");
}

TEST(ReasonOf, LeavesOtherBracketsAlone) {
  for (const char* text : {"", "[", "]", " []", "no such host", "cannot open [a:1] b",
                           "filesystem error: status: no [/a/b:1]", "Read error [127.0.0.1]:80",
                           "[1/2] of it", "in [x:y at z]"}) {
    EXPECT_EQ(reason(text), text);
  }
}

}  // namespace
}  // namespace mayfly
