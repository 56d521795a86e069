#include "cloud_hooks/gce/google_tokens.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>

#include "tests/unit/cloud_hooks/net/published_key.hpp"

namespace mayfly::cloud_hooks {
namespace {

std::string key_file() {
  return boost::json::serialize(boost::json::object{{"type", "service_account"},
                                                    {"project_id", "p"},
                                                    {"private_key_id", "k1"},
                                                    {"private_key", kPublishedKey},
                                                    {"client_email", "a@p.example"},
                                                    {"token_uri", "https://token.example/x"}});
}

TEST(Jwt, IsThatOfRfc7515) {
  const Result<std::string> jwt =
      sign_jwt(R"({"alg":"RS256"})",
               "{\"iss\":\"joe\",\r\n \"exp\":1300819380,\r\n \"http://example.com/is_root\":true}",
               kPublishedKey);
  ASSERT_TRUE(jwt.ok());
  EXPECT_EQ(jwt.value(),
            "eyJhbGciOiJSUzI1NiJ9"
            ".eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290"
            "Ijp0cnVlfQ"
            ".cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt"
            "_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLI"
            "ARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOP"
            "qvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe7"
            "7Rw");
}

TEST(Assertion, SaysWhoAsksForWhatAndForHowLong) {
  const Result<ServiceAccount> account = parse_service_account(key_file());
  ASSERT_TRUE(account.ok());
  const Result<std::string> assertion = make_assertion(account.value(), "scope-a", 1000);
  ASSERT_TRUE(assertion.ok());
  // {"alg":"RS256","typ":"JWT","kid":"k1"} and {"iss":"a@p.example","scope":"scope-a",
  // "aud":"https://token.example/x","iat":1000,"exp":4600}
  EXPECT_TRUE(assertion.value().starts_with(
      "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6ImsxIn0."
      "eyJpc3MiOiJhQHAuZXhhbXBsZSIsInNjb3BlIjoic2NvcGUtYSIsImF1ZCI6Imh0dHBzOi8vdG9rZW4uZXhhbXBsZS94"
      "IiwiaWF0IjoxMDAwLCJleHAiOjQ2MDB9."));
}

TEST(ServiceAccount, NamesWhatIsWrongAndNoValue) {
  const std::string whole = key_file();
  for (const auto& [from, to, complaint] :
       {std::tuple{"\"client_email\"", "\"client_mail\"", "client_email"},
        {"\"private_key\"", "\"key\"", "private_key"},
        {"\"service_account\"", "\"authorized_user\"", "service_account"},
        {"\"a@p.example\"", "7", "client_email"},
        {"{", "[", "JSON"}}) {
    std::string changed = whole;
    changed.replace(changed.find(from), std::string(from).size(), to);
    const Result<ServiceAccount> account = parse_service_account(changed);
    ASSERT_FALSE(account.ok()) << complaint;
    EXPECT_NE(account.error().detail.find(complaint), std::string::npos) << account.error().detail;
    EXPECT_EQ(account.error().detail.find("MIIE"), std::string::npos);
  }
}

class Unreachable final : public HttpSender {
 public:
  Result<HttpResponse> send(const HttpRequest&, const HttpLimits&) override {
    return Error{Errc::kPeerLost, "no such name"};
  }
  bool pause(Duration) override { return false; }
  void abort() override {}
};

/// A job that starts before the network is up waits for it, unless there is probably no server that
/// it could wait for.
TEST(GoogleTokens, AreAskedForAgainIfAKeysServerDoesNotAnswer) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("mayfly_key_" + std::to_string(::getpid()));
  std::ofstream(path) << key_file();
  Unreachable sender;
  GoogleTokenOptions options;
  EXPECT_EQ(GoogleTokens(options, sender, [] { return 0; }).token().error().kind,
            ProviderErrorKind::kAuth);
  options.key_file = path;
  EXPECT_EQ(GoogleTokens(options, sender, [] { return 0; }).token().error().kind,
            ProviderErrorKind::kRate);
  std::filesystem::remove(path);
}

TEST(ServiceAccount, WithAKeyThatIsNoneCannotSign) {
  for (const char* key : {"", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
                          // an elliptic curve's key
                          "-----BEGIN PRIVATE KEY-----\n"
                          "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgevZzL1gdAFr88hb2\n"
                          "OF/2NxApJCzGCEDdfSp6VQO30hyhRANCAAQRWz+jn65BtOMvdyHKcvjBeBSDZH2r\n"
                          "1RTwjmYSi9R/zpBnuQ4EiMnCqfMPWiZqB4QdbAd0E7oH50VpuZ1P087G\n"
                          "-----END PRIVATE KEY-----\n"}) {
    const Result<std::string> jwt = sign_jwt("{}", "{}", key);
    ASSERT_FALSE(jwt.ok());
    EXPECT_EQ(jwt.error().code, Errc::kInvalidInput);
  }
}

}  // namespace
}  // namespace mayfly::cloud_hooks
