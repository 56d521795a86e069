#include "cloud_hooks/http/message.hpp"

#include <gtest/gtest.h>

namespace mayfly::cloud_hooks {
namespace {

TEST(Url, IsReadAndWrittenBack) {
  const Result<Url> url = parse_url("https://EC2.eu-west-1.amazonaws.com/a?b=c");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url.value(), (Url{true, "ec2.eu-west-1.amazonaws.com", 443, "/a?b=c"}));
  EXPECT_EQ(url.value().text(), "https://ec2.eu-west-1.amazonaws.com/a?b=c");
  EXPECT_EQ(parse_url("http://127.0.0.1:8080").value(), (Url{false, "127.0.0.1", 8080, "/"}));
  EXPECT_EQ(parse_url("https://[fd00::1]:8443?x").value().text(), "https://[fd00::1]:8443/?x");
}

TEST(Url, OfAServerMayEndWithASlash) {
  EXPECT_EQ(before_path("http://169.254.169.254/"), "http://169.254.169.254");
  EXPECT_EQ(before_path("http://a:8"), "http://a:8");
  EXPECT_EQ(before_path("https://a/b//"), "https://a/b");
  EXPECT_EQ(before_path(""), "");
}

TEST(Url, RefusesWhatCouldMeanSomethingElse) {
  for (const char* text : {"", "ftp://a/", "https://", "https://user:secret@host/", "https://a b/",
                           "https://a/\r\nX: y", "https://a:0/", "https://a:70000/",
                           "https://a:99999/", "https://a:8x/", "https://[::1/", "https://[::1]x/",
                           "https://a/#b", "https://a\\b/", "https://a/\xc3\xa4"}) {
    const Result<Url> url = parse_url(text);
    ASSERT_FALSE(url.ok()) << text;
    EXPECT_EQ(url.error().detail.find("secret"), std::string::npos);
  }
}

TEST(HttpResponse, FindsHeadersInAnyCase) {
  const HttpResponse response{200, {{"Content-Type", "a"}, {"ETAG", "b"}}, ""};
  EXPECT_EQ(response.header("etag"), "b");
  EXPECT_EQ(response.header("content-type"), "a");
  EXPECT_FALSE(response.header("content").has_value());
}

TEST(PercentEncode, LeavesOnlyWhatRfc3986CallsUnreserved) {
  EXPECT_EQ(percent_encode("aZ09-._~"), "aZ09-._~");
  EXPECT_EQ(percent_encode("a b/c+=&\xff"), "a%20b%2Fc%2B%3D%26%FF");
  EXPECT_EQ(form_encode({{"A", "1"}, {"B.1", "x=y"}}), "A=1&B.1=x%3Dy");
}

TEST(Base64, FollowsRfc4648) {
  EXPECT_EQ(base64_encode(""), "");
  EXPECT_EQ(base64_encode("f"), "Zg==");
  EXPECT_EQ(base64_encode("fo"), "Zm8=");
  EXPECT_EQ(base64_encode("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64_encode("\xfb\xff", false), "+/8=");
  EXPECT_EQ(base64_encode("\xfb\xff", true), "-_8");
}

TEST(HttpDate, IsReadAsRfc9110WritesIt) {
  EXPECT_EQ(parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), 784111777);
  EXPECT_EQ(parse_http_date("Thu, 29 Feb 2024 00:00:00 GMT"), 1709164800);
  for (const char* text : {"", "Sun, 06 Nov 1994 08:49:37", "Sun, 06 Nox 1994 08:49:37 GMT",
                           "Sun, 06 Nov 1994 25:49:37 GMT", "Sun, 06-Nov-1994 08:49:37 GMT",
                           "Sunday, 06-Nov-94 08:49:37 GMT"}) {
    EXPECT_FALSE(parse_http_date(text).has_value()) << text;
  }
}

TEST(IsoTime, IsReadWithZoneAndFraction) {
  EXPECT_EQ(parse_iso_time("2015-08-30T12:36:00Z"), 1440938160);
  EXPECT_EQ(parse_iso_time("2015-08-30T12:36:00.123Z"), 1440938160);
  EXPECT_EQ(parse_iso_time("2015-08-30T05:36:00.000-07:00"), 1440938160);
  for (const char* text :
       {"", "2015-08-30", "2015-08-30T12:36:00", "2015-08-30T12:36:00.Z", "2015-13-30T12:36:00Z",
        "2015-08-30T12:36:00+0100", "2015-08-30T12:36:0Z", "2015-08-30T12:36:00Zx"}) {
    EXPECT_FALSE(parse_iso_time(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace mayfly::cloud_hooks
