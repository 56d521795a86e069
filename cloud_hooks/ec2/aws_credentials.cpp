#include "cloud_hooks/ec2/aws_credentials.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <map>

#include "base/check.hpp"
#include "base/try_assign.hpp"
#include "cloud_hooks/http/http_sender.hpp"
#include "cloud_hooks/http/json_fields.hpp"
#include "cloud_hooks/http/message.hpp"

namespace mayfly::cloud_hooks {
namespace {

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') {
      c = static_cast<char>(c - 'A' + 'a');
    }
  }
  return lower;
}

/// The text without leading and trailing spaces, and with several spaces replaced by one.
std::string single_spaced(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c != ' ' || (!result.empty() && result.back() != ' ')) {
      result += c;
    }
  }
  while (result.ends_with(' ')) {
    result.pop_back();
  }
  return result;
}

/// A query sorted as AWS requires: by name, then by value. A name without '=' has an empty value.
std::string canonical_query(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    const std::size_t equals = std::min(pair.find('='), pair.size());
    pairs.emplace_back(pair.substr(0, equals), pair.substr(std::min(equals + 1, pair.size())));
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  std::sort(pairs.begin(), pairs.end());
  std::string sorted;
  for (const auto& [name, value] : pairs) {
    sorted += fmt::format("{}{}={}", sorted.empty() ? "" : "&", name, value);
  }
  return sorted;
}

/// The secret is never used to sign directly: the key is derived for one day, region and service.
std::string signing_key(const AwsCredentials& credentials, const AwsScope& scope,
                        std::string_view day) {
  std::string key = hmac_sha256("AWS4" + credentials.secret_key, day);
  key = hmac_sha256(key, scope.region);
  key = hmac_sha256(key, scope.service);
  return hmac_sha256(key, "aws4_request");
}

}  // namespace

std::string aws_time(std::int64_t unix_seconds) {
  const auto time = static_cast<std::time_t>(unix_seconds);
  std::tm utc{};
  ENSURE(gmtime_r(&time, &utc) != nullptr, "a year that fits an int");
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

std::string aws_canonical_request(const HttpRequest& request, std::string& signed_headers) {
  std::map<std::string, std::string> headers;  // sorted by name, several of one name joined
  headers["host"] = request.url.host_header();
  for (const auto& [name, value] : request.headers) {
    std::string& joined = headers[lower_case(name)];
    joined += joined.empty() ? "" : ",";
    joined += single_spaced(value);
  }
  const std::string& target = request.url.target;
  const std::size_t question = std::min(target.find('?'), target.size());
  const std::string query = target.substr(std::min(question + 1, target.size()));
  std::string canonical =
      request.method + "\n" + target.substr(0, question) + "\n" + canonical_query(query) + "\n";
  signed_headers.clear();
  for (const auto& [name, value] : headers) {
    canonical += name + ":" + value + "\n";
    signed_headers += signed_headers.empty() ? "" : ";";
    signed_headers += name;
  }
  return canonical + "\n" + signed_headers + "\n" + to_hex(sha256(request.body));
}

void aws_sign(HttpRequest& request, const AwsCredentials& credentials, const AwsScope& scope,
              std::int64_t unix_seconds) {
  const std::string time = aws_time(unix_seconds);
  const std::string day = time.substr(0, 8);
  request.headers.emplace_back("X-Amz-Date", time);
  if (!credentials.session_token.empty()) {
    request.headers.emplace_back("X-Amz-Security-Token", credentials.session_token);
  }
  std::string signed_headers;
  const std::string canonical = aws_canonical_request(request, signed_headers);
  const std::string where = fmt::format("{}/{}/{}/aws4_request", day, scope.region, scope.service);
  const std::string to_sign =
      fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", time, where, to_hex(sha256(canonical)));
  const std::string signature = to_hex(hmac_sha256(signing_key(credentials, scope, day), to_sign));
  request.headers.emplace_back(
      "Authorization", fmt::format("AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, "
                                   "Signature={}",
                                   credentials.access_key, where, signed_headers, signature));
}

AwsCredentialOptions aws_credential_options(
    const std::function<std::string(const std::string&)>& get) {
  AwsCredentialOptions options;
  options.fixed = {get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY"),
                   get("AWS_SESSION_TOKEN")};
  if (std::string endpoint = get("AWS_EC2_METADATA_SERVICE_ENDPOINT"); !endpoint.empty()) {
    options.metadata_endpoint = before_path(std::move(endpoint));
  }
  return options;
}

AwsCredentialSource::AwsCredentialSource(AwsCredentialOptions options, HttpSender& sender,
                                         std::function<std::int64_t()> unix_seconds,
                                         std::shared_ptr<SharedAwsRole> shared)
    : options_(std::move(options)),
      sender_(sender),
      unix_seconds_(std::move(unix_seconds)),
      shared_(shared != nullptr ? std::move(shared) : std::make_shared<SharedAwsRole>()) {}

std::string AwsCredentialSource::source() const {
  return options_.fixed.access_key.empty() ? "the machine's role" : "the environment";
}

std::string AwsCredentialSource::without_secrets(std::string text) const {
  const AwsCredentials role = shared_->last().value_or(AwsCredentials());
  for (const std::string* secret : {&options_.fixed.secret_key, &options_.fixed.session_token,
                                    &role.secret_key, &role.session_token}) {
    for (std::size_t at = text.find(*secret); !secret->empty() && at != std::string::npos;
         at = text.find(*secret)) {
      text.replace(at, secret->size(), "***");
    }
  }
  return text;
}

Answer<std::string> AwsCredentialSource::metadata(const std::string& method,
                                                  const std::string& path, HttpHeaders headers) {
  const Result<Url> url = parse_url(options_.metadata_endpoint + path);
  if (!url.ok()) {
    return ProviderError{ProviderErrorKind::kAuth, url.error().detail};
  }
  HttpLimits limits;
  limits.direct = true;
  limits.connect_max = seconds(2);
  limits.answer_max = seconds(5);
  limits.body_bytes_max = 64 * 1024;
  const HttpRequest request{method, url.value(), std::move(headers), ""};
  Result<HttpResponse> answer =
      send_with_retries(sender_, limits, [&] { return Result<HttpRequest>(request); });
  if (answer.ok() && answer.value().status == 200) {
    return std::move(answer.value().body);
  }
  ProviderError error =
      answer.ok() ? by_status(answer.value().status, fmt::format("HTTP {}", answer.value().status))
                  : no_answer(answer.error());
  if (error.kind != ProviderErrorKind::kRate || (!answer.ok() && !shared_->has_had_key())) {
    error.kind = ProviderErrorKind::kAuth;  // no metadata server here, or a machine without a role
  }
  error.detail = "no keys: neither AWS_ACCESS_KEY_ID nor " + source() + ": " + error.detail;
  return error;
}

Answer<AwsCredentials> AwsCredentialSource::take(const std::string& json) {
  Result<boost::json::object> read = parse_object(json, "");
  const boost::json::object role = read.ok() ? std::move(read).value() : boost::json::object();
  const AwsCredentials keys{text_of(role, "AccessKeyId"), text_of(role, "SecretAccessKey"),
                            text_of(role, "Token")};
  const std::optional<std::int64_t> expiration = parse_iso_time(text_of(role, "Expiration"));
  if (keys.access_key.empty() || keys.secret_key.empty() || !expiration) {
    return ProviderError{ProviderErrorKind::kRate,
                         "the answer of the metadata server is not a role's keys"};
  }
  const std::int64_t now = unix_seconds_();
  shared_->put(keys, now, *expiration - now);
  return keys;
}

/// IMDSv2: every request needs a token from a PUT request, which a forged GET cannot obtain.
Answer<AwsCredentials> AwsCredentialSource::role_credentials() {
  TRY_ASSIGN(const std::string token, metadata("PUT", "/latest/api/token",
                                               {{"X-aws-ec2-metadata-token-ttl-seconds", "300"}}));
  const HttpHeaders headers = {{"X-aws-ec2-metadata-token", token}};
  const std::string folder = "/latest/meta-data/iam/security-credentials/";
  TRY_ASSIGN(const std::string roles, metadata("GET", folder, headers));
  TRY_ASSIGN(const std::string keys,
             metadata("GET", folder + percent_encode(roles.substr(0, roles.find('\n'))), headers));
  return take(keys);
}

Answer<AwsCredentials> AwsCredentialSource::credentials() {
  if (!options_.fixed.access_key.empty()) {
    return options_.fixed;
  }
  if (std::optional<AwsCredentials> good = shared_->find(unix_seconds_())) {
    return *std::move(good);
  }
  return role_credentials();
}

}  // namespace mayfly::cloud_hooks
