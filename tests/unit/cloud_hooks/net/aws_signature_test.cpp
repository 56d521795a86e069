// Compares with AWS's published signature test suite and the example of its IAM manual.
#include "cloud_hooks/ec2/aws_credentials.hpp"

#include <gtest/gtest.h>

#include "cloud_hooks/http/message.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr std::int64_t kSuiteTime = 1440938160;  // 2015-08-30T12:36:00Z
const AwsCredentials kSuiteKey{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", ""};

struct Vector {
  const char* name;
  const char* method;
  const char* url;
  HttpHeaders headers;
  const char* body;
  const char* signed_headers;
  const char* signature;
};

std::string authorization(const HttpRequest& request) {
  return request.headers.back().second;
}

TEST(AwsSignature, IsThatOfThePublishedTestSuite) {
  const std::vector<Vector> vectors = {
      {"get-vanilla",
       "GET",
       "https://example.amazonaws.com/",
       {},
       "",
       "host;x-amz-date",
       "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
      {"post-vanilla",
       "POST",
       "https://example.amazonaws.com/",
       {},
       "",
       "host;x-amz-date",
       "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
      {"post-x-www-form-urlencoded",
       "POST",
       "https://example.amazonaws.com/",
       {{"Content-Type", "application/x-www-form-urlencoded"}},
       "Param1=value1",
       "content-type;host;x-amz-date",
       "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
      {"get-vanilla-query-order-key-case",
       "GET",
       "https://example.amazonaws.com/?Param2=value2&Param1=value1",
       {},
       "",
       "host;x-amz-date",
       "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
      {"get-header-value-trim",
       "GET",
       "https://example.amazonaws.com/",
       {{"My-Header1", " value1"}, {"My-Header2", " \"a   b   c\""}},
       "",
       "host;my-header1;my-header2;x-amz-date",
       "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"}};
  for (const Vector& vector : vectors) {
    HttpRequest request{vector.method, parse_url(vector.url).value(), vector.headers, vector.body};
    aws_sign(request, kSuiteKey, {"us-east-1", "service"}, kSuiteTime);
    EXPECT_EQ(authorization(request),
              std::string("AWS4-HMAC-SHA256 "
                          "Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
                          "SignedHeaders=") +
                  vector.signed_headers + ", Signature=" + vector.signature)
        << vector.name;
  }
}

TEST(AwsSignature, IsThatOfTheManualsExample) {
  HttpRequest request{
      "GET",
      parse_url("https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08").value(),
      {{"Content-Type", "application/x-www-form-urlencoded; charset=utf-8"}},
      ""};
  std::string names;
  HttpRequest dated = request;
  dated.headers.emplace_back("X-Amz-Date", aws_time(kSuiteTime));
  EXPECT_EQ(to_hex(sha256(aws_canonical_request(dated, names))),
            "f536975d06c0309214f805bb90ccff089219ecd68b2577efef23edd43b7e1a59");
  aws_sign(request, kSuiteKey, {"us-east-1", "iam"}, kSuiteTime);
  EXPECT_TRUE(authorization(request).ends_with(
      "Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"));
}

TEST(AwsSignature, CoversTheTokenOfARole) {
  HttpRequest request{"POST",
                      parse_url("https://ec2.eu-west-1.amazonaws.com/").value(),
                      {{"Content-Type", "application/x-www-form-urlencoded; charset=utf-8"}},
                      "Action=DescribeInstances&Version=2016-11-15"};
  aws_sign(request, {"ASIAEXAMPLE", "secret", "to/ken+=="}, {"eu-west-1", "ec2"}, kSuiteTime);
  EXPECT_TRUE(authorization(request).ends_with(  // as botocore 1.43 signs it
      "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, "
      "Signature=e089c88ae2079ba198641fccad3ce6e9f8d0f1e0a00d31de57563596c08622c9"));
}

TEST(AwsSignature, NeverSendsTheSecret) {
  HttpRequest request{"GET", parse_url("https://example.amazonaws.com/").value(), {}, ""};
  aws_sign(request, kSuiteKey, {"us-east-1", "service"}, kSuiteTime);
  for (const auto& [name, value] : request.headers) {
    EXPECT_EQ(value.find(kSuiteKey.secret_key), std::string::npos) << name;
  }
}

TEST(AwsCredentials, TakeAMetadataEndpointWithASlash) {
  const AwsCredentialOptions options = aws_credential_options([](const std::string& name) {
    return std::string(name == "AWS_EC2_METADATA_SERVICE_ENDPOINT" ? "http://127.0.0.1:8/" : "");
  });
  EXPECT_EQ(options.metadata_endpoint, "http://127.0.0.1:8");
}

TEST(AwsTime, IsUtc) {
  EXPECT_EQ(aws_time(0), "19700101T000000Z");
  EXPECT_EQ(aws_time(kSuiteTime), "20150830T123600Z");
}

}  // namespace
}  // namespace mayfly::cloud_hooks
