#include "observe/access.hpp"

#include <gtest/gtest.h>

namespace mayfly::observe {
namespace {

Gate gate() {
  return {"0123", 7001, {"head.example"}};
}

Query query(const std::string& target, const std::string& host = "127.0.0.1:7001") {
  Query query;
  query.method = "GET";
  query.target = target;
  query.host = host;
  query.cookie = "other=1; mayfly-7001=0123";
  return query;
}

int status_of(const Query& query) {
  return refusal(gate(), query, "10.0.0.7");
}

TEST(Access, OnlyOurOwnNamesAreAnswered) {
  for (const char* host : {"127.0.0.1:7001", "localhost:7001", "[::1]:7001", "10.0.0.7:7001",
                           "head.example:7001", "Head.Example:7001", "LOCALHOST:7001"}) {
    EXPECT_EQ(status_of(query("/api/state?run=0", host)), 0) << host;
  }
  for (const char* host : {"evil.example:7001", "10.0.0.8:7001", "127.0.0.1:7002", "127.0.0.1", "",
                           "localhost.evil.example:7001", "head.example:7001:7001", "[::1"}) {
    EXPECT_EQ(status_of(query("/", host)), 421) << host;
  }
}

TEST(Access, AnIPv4AddressOfASocketOfBothFamiliesIsThatAddress) {
  const std::string own = "::ffff:10.0.0.7";
  EXPECT_EQ(refusal(gate(), query("/api/state?run=0", "10.0.0.7:7001"), own), 0);
  EXPECT_EQ(refusal(gate(), query("/api/state?run=0", "10.0.0.8:7001"), own), 421);
}

TEST(Access, NumbersNeedTheKey) {
  Query without = query("/api/state");
  without.cookie.clear();
  EXPECT_EQ(status_of(without), 403);
  without.authorization = "Bearer 0124";
  EXPECT_EQ(status_of(without), 403);
  without.authorization = "Bearer 0123";
  EXPECT_EQ(status_of(without), 0);
  without.authorization = "0123";
  EXPECT_EQ(status_of(without), 403);
  without.cookie = "mayfly-7002=0123; xmayfly-7001=0123";
  EXPECT_EQ(status_of(without), 403);
  without.target = "/";
  EXPECT_EQ(status_of(without), 0);  // the page itself contains no numbers
}

TEST(Access, ForeignPagesAndOtherMethodsAreRefused) {
  Query one = query("/api/state");
  one.origin = "http://evil.example";
  EXPECT_EQ(status_of(one), 403);
  one.origin = "http://127.0.0.1:7001";
  EXPECT_EQ(status_of(one), 0);
  one.method = "POST";
  EXPECT_EQ(status_of(one), 405);
  one.method = "DELETE";
  EXPECT_EQ(status_of(one), 405);
  one.method = "POST";
  one.target = "/session";
  EXPECT_EQ(status_of(one), 0);
  one.origin.clear();
  EXPECT_EQ(status_of(one), 403);
}

TEST(Access, TheKeyComesFromTheToken) {
  // printf 'mayfly dashboard\n%s\n' secret | sha256sum
  EXPECT_EQ(viewing_key("secret"),
            "a559352fb8d148445b5109f2642111b0c4b085332cfa9f5f1db930945e50d089");
  EXPECT_NE(random_key(), random_key());
  EXPECT_EQ(random_key().size(), 64U);
}

TEST(Access, Parameters) {
  EXPECT_EQ(parameter("/api/series?run=2&version=17", "version"), "17");
  EXPECT_EQ(parameter("/api/series?run=2&version=17", "vers"), "");
  EXPECT_EQ(parameter("/api/series", "run"), "");
  EXPECT_EQ(path_of("/api/series?run=2"), "/api/series");
}

}  // namespace
}  // namespace mayfly::observe
