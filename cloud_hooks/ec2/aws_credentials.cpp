#include "cloud_hooks/ec2/aws_credentials.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "cloud_hooks/http/answers.hpp"

namespace mayfly::cloud_hooks {

AwsCredentialOptions aws_credential_options(
    const std::function<std::string(const std::string&)>& get) {
  AwsCredentialOptions options;
  options.fixed = {get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY"),
                   get("AWS_SESSION_TOKEN")};
  if (std::string endpoint = get("AWS_EC2_METADATA_SERVICE_ENDPOINT"); !endpoint.empty()) {
    options.metadata_endpoint = std::move(endpoint);
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
    return ProviderError{ProviderErrorKind::kAuth, url.error().detail, {}, {}};
  }
  HttpLimits limits;
  limits.direct = true;
  limits.connect_max = seconds(2);
  limits.answer_max = seconds(5);
  limits.body_bytes_max = 64 * 1024;
  const HttpRequest request{method, url.value(), std::move(headers), ""};
  Result<HttpResponse> answer = send_with_retries(
      sender_, limits, {}, [&] { return Result<HttpRequest>(request); }, worth_another_try);
  if (answer.ok() && answer.value().status == 200) {
    return std::move(answer.value().body);
  }
  ProviderError error =
      answer.ok() ? by_status(answer.value().status, fmt::format("HTTP {}", answer.value().status))
                  : no_answer(answer.error());
  if (error.kind != ProviderErrorKind::kRate || (!answer.ok() && !shared_->had_one())) {
    error.kind = ProviderErrorKind::kAuth;  // no such server here, or a machine without a role
  }
  error.detail = "no keys: neither AWS_ACCESS_KEY_ID nor " + source() + ": " + error.detail;
  return error;
}

Answer<AwsCredentials> AwsCredentialSource::take(const std::string& json) {
  constexpr std::int64_t kMarginSeconds = 300;
  boost::system::error_code error;
  const boost::json::value parsed = boost::json::parse(json, error);
  const boost::json::object* const object = error ? nullptr : parsed.if_object();
  const auto text = [&](std::string_view name) {
    const boost::json::value* const value = object == nullptr ? nullptr : object->if_contains(name);
    return value != nullptr && value->is_string() ? std::string(value->get_string())
                                                  : std::string();
  };
  const AwsCredentials keys{text("AccessKeyId"), text("SecretAccessKey"), text("Token")};
  const std::optional<std::int64_t> expiration = parse_iso_time(text("Expiration"));
  if (keys.access_key.empty() || keys.secret_key.empty() || !expiration) {
    return ProviderError{
        ProviderErrorKind::kRate, "the answer of the metadata server is not a role's keys", {}, {}};
  }
  const std::int64_t good_for = std::max<std::int64_t>(0, *expiration - unix_seconds_());
  shared_->put(keys, unix_seconds_() + std::max(good_for - kMarginSeconds, good_for / 2));
  return keys;
}

Answer<AwsCredentials> AwsCredentialSource::role_credentials() {
  Answer<std::string> token =
      metadata("PUT", "/latest/api/token", {{"X-aws-ec2-metadata-token-ttl-seconds", "300"}});
  if (ProviderError* const error = std::get_if<ProviderError>(&token)) {
    return std::move(*error);
  }
  const HttpHeaders headers = {{"X-aws-ec2-metadata-token", std::get<std::string>(token)}};
  const std::string folder = "/latest/meta-data/iam/security-credentials/";
  Answer<std::string> role = metadata("GET", folder, headers);
  if (ProviderError* const error = std::get_if<ProviderError>(&role)) {
    return std::move(*error);
  }
  const std::string& roles = std::get<std::string>(role);
  Answer<std::string> keys =
      metadata("GET", folder + percent_encode(roles.substr(0, roles.find('\n'))), headers);
  if (ProviderError* const error = std::get_if<ProviderError>(&keys)) {
    return std::move(*error);
  }
  return take(std::get<std::string>(keys));
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
