#include "cloud_hooks/http/http_client.hpp"

#include <gtest/gtest.h>

#include <map>

namespace mayfly::cloud_hooks {
namespace {

using Environment = std::map<std::string, std::string>;

Result<ProxyRules> rules_of(const Environment& environment) {
  return ProxyRules::from_environment([&](const std::string& name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  });
}

std::string proxy_of(const Environment& environment, const std::string& url) {
  const auto proxy = rules_of(environment).value().proxy_for(parse_url(url).value());
  return proxy ? proxy->host + ":" + std::to_string(proxy->port) : "";
}

TEST(Proxy, IsTheOneForTheScheme) {
  const Environment both = {{"https_proxy", "http://a:1"}, {"http_proxy", "b:2"}};
  EXPECT_EQ(proxy_of(both, "https://x/"), "a:1");
  EXPECT_EQ(proxy_of(both, "http://x/"), "b:2");
  EXPECT_EQ(proxy_of({}, "https://x/"), "");
  EXPECT_EQ(proxy_of({{"ALL_PROXY", "c:3"}}, "http://x/"), "c:3");
  EXPECT_EQ(proxy_of({{"HTTP_PROXY", "c:3"}}, "http://x/"), "") << "a client may set it (httpoxy)";
}

TEST(Proxy, IsNotAskedForNamesThatTheListCovers) {
  const Environment some = {{"https_proxy", "a:1"},
                            {"no_proxy", "corp.example, .Other.example,h:8"}};
  EXPECT_EQ(proxy_of(some, "https://corp.example/"), "");
  EXPECT_EQ(proxy_of(some, "https://x.corp.example/"), "");
  EXPECT_EQ(proxy_of(some, "https://x.other.example/"), "");
  EXPECT_EQ(proxy_of(some, "https://h:8/"), "");
  EXPECT_EQ(proxy_of(some, "https://h/"), "a:1");
  EXPECT_EQ(proxy_of(some, "https://mycorp.example/"), "a:1");
  EXPECT_EQ(proxy_of({{"https_proxy", "a:1"}, {"NO_PROXY", "*"}}, "https://x/"), "");
}

TEST(Proxy, MayHaveAPassword) {
  const auto proxy = rules_of({{"https_proxy", "http://me:secret%20word@a:1"}})
                         .value()
                         .proxy_for(parse_url("https://x/").value());
  ASSERT_TRUE(proxy.has_value());
  EXPECT_EQ(proxy->authorization, "Basic bWU6c2VjcmV0IHdvcmQ=");
}

TEST(Proxy, ThatCannotBeReadIsNamedWithoutItsPassword) {
  for (const char* text : {"socks5://me:hidden@a:1", "https://me:hidden@a:1", "me:hidden@",
                           "me:hidden@a:1/path", "me:hidden@a b"}) {
    const Result<ProxyRules> rules = rules_of({{"https_proxy", text}});
    ASSERT_FALSE(rules.ok()) << text;
    EXPECT_NE(rules.error().detail.find("https_proxy"), std::string::npos);
    EXPECT_EQ(rules.error().detail.find("hidden"), std::string::npos) << rules.error().detail;
  }
}

}  // namespace
}  // namespace mayfly::cloud_hooks
