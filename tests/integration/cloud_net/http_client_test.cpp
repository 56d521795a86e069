// The client against servers that make all kinds of errors.
#include "cloud_hooks/http/http_client.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "tests/integration/cloud_net/fake_cloud.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr const char* kSecret = "s3cr3t-value";

class HttpClientTest : public testing::Test {
 protected:
  void SetUp() override { cloud_.reset(); }

  HttpRequest to(const std::string& where, const std::string& target = "/") {
    return {"GET",
            parse_url(cloud_[where] + target).value(),
            {{"Authorization", std::string("Bearer ") + kSecret}},
            ""};
  }

  HttpClient client(ProxyRules proxies = {}) {
    return HttpClient({std::move(proxies), cloud_["ca_file"]});
  }

  void expect_error(const Result<HttpResponse>& answer, Errc code, const std::string& what) {
    ASSERT_FALSE(answer.ok()) << what << ": status " << answer.value().status;
    EXPECT_EQ(answer.error().code, code) << what << ": " << answer.error().detail;
    EXPECT_EQ(answer.error().detail.find(kSecret), std::string::npos) << answer.error().detail;
    EXPECT_NE(answer.error().detail.find("127.0.0.1"), std::string::npos) << answer.error().detail;
  }

  FakeCloud& cloud_ = FakeCloud::get();
};

HttpLimits impatient() {
  HttpLimits limits;
  limits.answer_max = milliseconds(300);
  limits.body_bytes_max = 1 << 20;
  return limits;
}

TEST_F(HttpClientTest, BringsStatusHeadersAndBodyOverTls) {
  HttpClient http = client();
  const Result<HttpResponse> answer = http.send(to("gce", "/compute/v1/projects/x"), {});
  ASSERT_TRUE(answer.ok()) << answer.error().detail;
  EXPECT_EQ(answer.value().status, 401);
  EXPECT_EQ(answer.value().header("content-type"), "application/json");
  EXPECT_NE(answer.value().body.find("authError"), std::string::npos);
}

TEST_F(HttpClientTest, TalksOnlyToServersWithTheRightCertificate) {
  HttpClient http = client();
  for (const char* bad : {"other_authority", "wrong_host", "expired"}) {
    expect_error(http.send(to(bad), {}), Errc::kRefused, bad);
    EXPECT_EQ(cloud_.requests(bad, "*"), 0) << "no request before trust";
  }
  HttpClient with_the_systems_authorities;
  expect_error(with_the_systems_authorities.send(to("gce"), {}), Errc::kRefused, "system");
}

TEST_F(HttpClientTest, NamesEachKindOfBrokenAnswer) {
  HttpClient http = client();
  for (const auto& [kind, code] : {std::pair{"hang", Errc::kDeadline},
                                   {"drip", Errc::kDeadline},
                                   {"close", Errc::kPeerLost},
                                   {"truncate", Errc::kPeerLost},
                                   {"huge", Errc::kCorrupt},
                                   {"headers", Errc::kCorrupt},
                                   {"not_http", Errc::kCorrupt}}) {
    for (const char* where : {"gce", "metadata"}) {
      cloud_.control("fault", std::string(R"({"kind": ")") + kind + "\"}");
      expect_error(http.send(to(where), impatient()), code, std::string(kind) + " of " + where);
    }
  }
}

TEST_F(HttpClientTest, DoesNotFollowRedirects) {
  HttpClient http = client();
  cloud_.control("fault", R"({"kind": "redirect"})");
  const Result<HttpResponse> answer = http.send(to("gce"), {});
  ASSERT_TRUE(answer.ok()) << answer.error().detail;
  EXPECT_EQ(answer.value().status, 302);
  EXPECT_EQ(cloud_.requests("trap", "*"), 0);
}

TEST_F(HttpClientTest, NobodyListeningIsAPeerLost) {
  HttpClient http = client();
  HttpRequest request = to("gce");
  request.url.port = 1;
  expect_error(http.send(request, impatient()), Errc::kPeerLost, "port 1");
  request.url.host = "does-not-exist.invalid";
  const Result<HttpResponse> answer = http.send(request, impatient());
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().detail.find("does-not-exist.invalid"), std::string::npos);
}

TEST_F(HttpClientTest, GivesUpOnAServerThatDoesNotSpeakTls) {
  HttpClient http = client();
  HttpRequest request = to("metadata");
  request.url.tls = true;
  HttpLimits limits = impatient();
  limits.connect_max = milliseconds(300);
  const Result<HttpResponse> answer = http.send(request, limits);
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().detail.find("TLS"), std::string::npos) << answer.error().detail;
}

TEST_F(HttpClientTest, RefusesToWriteHeadersThatWouldBecomeTwo) {
  HttpClient http = client();
  HttpRequest request = to("gce");
  request.headers.emplace_back("X-A", std::string(kSecret) + "\r\nX-B: 1");
  expect_error(http.send(request, {}), Errc::kInvalidInput, "line break");
}

TEST_F(HttpClientTest, AbortEndsARequestThatHangsAndAllLaterOnes) {
  HttpClient http = client();
  cloud_.control("fault", R"({"kind": "hang"})");
  HttpRequest request = to("gce");
  std::thread other([&] {
    while (cloud_.requests("gce", "*") == 0) {
      std::this_thread::yield();
    }
    http.abort();
  });
  HttpLimits limits;
  limits.answer_max = seconds(60);
  const Result<HttpResponse> answer = http.send(request, limits);
  other.join();
  expect_error(answer, Errc::kAborted, "in progress");
  expect_error(http.send(to("gce"), {}), Errc::kAborted, "later");
  EXPECT_FALSE(http.pause(seconds(60)));
}

HttpLimits kept_open() {
  HttpLimits limits = impatient();
  limits.direct = true;
  limits.keep_open = true;
  return limits;
}

TEST_F(HttpClientTest, OneConnectionServesManyRequestsIfItIsKeptOpen) {
  HttpClient http;
  const std::string before = cloud_.control("connections");
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(http.send(to("metadata"), kept_open()).ok());
  }
  HttpClient other;
  HttpLimits limits = kept_open();
  limits.keep_open = false;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(other.send(to("metadata"), limits).ok());
  }
  EXPECT_EQ(std::stoi(cloud_.control("connections")) - std::stoi(before), 1 + 5);
}

TEST_F(HttpClientTest, AConnectionThatTheServerHasClosedIsMadeAnew) {
  HttpClient http;
  ASSERT_TRUE(http.send(to("metadata"), kept_open()).ok());
  cloud_.control("fault", R"({"service": "metadata", "kind": "close"})");
  EXPECT_TRUE(http.send(to("metadata"), kept_open()).ok()) << "as if it was closed in between";
  cloud_.control("fault", R"({"service": "metadata", "kind": "close", "times": 2})");
  expect_error(http.send(to("metadata"), kept_open()), Errc::kPeerLost, "twice is a failure");
  EXPECT_TRUE(http.send(to("metadata"), kept_open()).ok());
}

TEST_F(HttpClientTest, BrokenAnswersOverAConnectionThatWasKeptAreNamedToo) {
  HttpClient http;
  for (const auto& [kind, code] : {std::pair{"hang", Errc::kDeadline},
                                   {"huge", Errc::kCorrupt},
                                   {"not_http", Errc::kCorrupt}}) {
    ASSERT_TRUE(http.send(to("metadata"), kept_open()).ok());
    cloud_.control("fault", std::string(R"({"service": "metadata", "kind": ")") + kind + "\"}");
    expect_error(http.send(to("metadata"), kept_open()), code, kind);
  }
}

TEST_F(HttpClientTest, AKeptConnectionIsForItsOwnServerOnly) {
  HttpClient http;
  ASSERT_TRUE(http.send(to("metadata"), kept_open()).ok());
  const Result<HttpResponse> other = http.send(to("control", "/no-such"), kept_open());
  ASSERT_TRUE(other.ok()) << other.error().detail;
  EXPECT_NE(other.value().body.find("no control"), std::string::npos);
  EXPECT_TRUE(http.send(to("metadata"), kept_open()).ok());
}

TEST_F(HttpClientTest, GoesThroughAProxyThatTheEnvironmentNames) {
  const std::string proxy = "http://me:secret%20word@" + cloud_["proxy"];
  const auto rules = ProxyRules::from_environment([&](const std::string& name) {
    return name == "https_proxy" || name == "http_proxy" ? proxy : std::string();
  });
  HttpClient http = client(rules.value());
  const Result<HttpResponse> tls = http.send(to("gce"), {});
  ASSERT_TRUE(tls.ok()) << tls.error().detail;
  EXPECT_EQ(tls.value().status, 401);
  EXPECT_EQ(cloud_.requests("proxy", "CONNECT"), 1);
  const Result<HttpResponse> plain = http.send(to("metadata"), {});
  ASSERT_TRUE(plain.ok()) << plain.error().detail;
  EXPECT_EQ(cloud_.requests("proxy", "GET"), 1);
  HttpLimits limits;
  limits.direct = true;
  ASSERT_TRUE(http.send(to("metadata"), limits).ok());
  EXPECT_EQ(cloud_.requests("proxy", "GET"), 1) << "metadata servers are asked directly";
}

TEST_F(HttpClientTest, SaysThatTheProxyRefuses) {
  const auto rules = ProxyRules::from_environment([&](const std::string& name) {
    return name == "https_proxy" ? "me:wrong-word@" + cloud_["proxy"] : std::string();
  });
  HttpClient http = client(rules.value());
  const Result<HttpResponse> answer = http.send(to("gce"), {});
  expect_error(answer, Errc::kRefused, "proxy");
  EXPECT_NE(answer.error().detail.find("407"), std::string::npos);
  EXPECT_EQ(answer.error().detail.find("wrong-word"), std::string::npos);
}

}  // namespace
}  // namespace mayfly::cloud_hooks
