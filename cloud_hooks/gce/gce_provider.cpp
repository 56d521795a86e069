#include "cloud_hooks/gce/gce_provider.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "cloud_hooks/gce/gce_quotas.hpp"
#include "cloud_hooks/http/answers.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr std::uint32_t kCountMax = 64;
constexpr int kPagesMax = 100;

/// Splits "zone/name"; both are empty if the id is not of this form.
std::pair<std::string, std::string> split_id(const std::string& id) {
  const std::size_t slash = id.find('/');
  const bool fine =
      slash != std::string::npos && slash > 0 && slash + 1 < id.size() &&
      std::all_of(id.begin(), id.end(),
                  [](char c) {
                    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '/';
                  }) &&
      id.find('/', slash + 1) == std::string::npos;
  return fine ? std::pair(id.substr(0, slash), id.substr(slash + 1))
              : std::pair<std::string, std::string>();
}

/// The more important of two reasons for too few servers; an unknown outcome comes first.
void keep_worse(std::optional<ProviderError>& error, ProviderError other) {
  if (!error ||
      (other.kind == ProviderErrorKind::kRate && error->kind != ProviderErrorKind::kRate)) {
    error = std::move(other);
  }
}

class GceProvider final : public Provider {
 public:
  GceProvider(GceOptions options, GoogleTokenOptions tokens, std::unique_ptr<HttpSender> sender,
              std::function<std::int64_t()> unix_seconds, std::shared_ptr<SharedGoogleToken> token)
      : options_(std::move(options)),
        sender_(std::move(sender)),
        unix_seconds_(std::move(unix_seconds)),
        tokens_(std::move(tokens), *sender_, unix_seconds_, std::move(token)) {}

  RequestOutcome request(const ServerRequest& request) override {
    RequestOutcome outcome;
    std::vector<Insertion> insertions;
    for (std::uint32_t i = 0; i < std::min(request.count, kCountMax); ++i) {
      Answer<Insertion> insertion = insert(request, i);
      if (ProviderError* const error = std::get_if<ProviderError>(&insertion)) {
        outcome.error = std::move(*error);
        break;
      }
      insertions.push_back(std::get<Insertion>(std::move(insertion)));
    }
    const Instant deadline = monotonic_now() + options_.operation_wait_max;
    for (Insertion& insertion : insertions) {
      if (std::optional<ProviderError> error = finish(insertion, deadline)) {
        keep_worse(outcome.error, std::move(*error));
      } else {
        outcome.servers.push_back(std::move(insertion.server));
      }
    }
    return outcome;
  }

  std::optional<ProviderError> release(const std::string& id) override {
    const auto [zone, name] = split_id(id);
    if (name.empty()) {
      return std::nullopt;
    }
    const Answer<HttpResponse> answer =
        call("DELETE", fmt::format("/zones/{}/instances/{}", zone, name), "", "releasing " + id);
    const ProviderError* const error = std::get_if<ProviderError>(&answer);
    return error == nullptr || status_ == 404 ? std::nullopt : std::optional(*error);
  }

  Answer<ServerStatus> status(const std::string& id) override {
    ServerStatus gone;
    gone.id = id;
    const auto [zone, name] = split_id(id);
    if (name.empty()) {
      return gone;
    }
    const Answer<HttpResponse> answer =
        call("GET", fmt::format("/zones/{}/instances/{}", zone, name), "", "asking for " + id);
    if (const ProviderError* const error = std::get_if<ProviderError>(&answer)) {
      return status_ == 404 ? Answer<ServerStatus>(gone) : *error;
    }
    const auto& response = std::get<HttpResponse>(answer);
    return or_unreadable(parse_gce_instance(response.body, now_of(response)));
  }

  Answer<std::vector<ServerStatus>> list() override {
    std::vector<ServerStatus> servers;
    std::string token;
    for (int page_number = 0; page_number < kPagesMax; ++page_number) {
      std::vector<std::pair<std::string, std::string>> query = {
          {"filter", fmt::format("labels.mayfly-job={}", options_.job)}, {"maxResults", "500"}};
      if (!token.empty()) {
        query.emplace_back("pageToken", token);
      }
      const Answer<HttpResponse> answer =
          call("GET", fmt::format("/aggregated/instances?{}", form_encode(query)), "",
               "listing servers");
      if (const ProviderError* const error = std::get_if<ProviderError>(&answer)) {
        return *error;
      }
      const auto& response = std::get<HttpResponse>(answer);
      Answer<GcePage> page = or_unreadable(parse_gce_page(response.body, now_of(response)));
      if (ProviderError* const error = std::get_if<ProviderError>(&page)) {
        return std::move(*error);
      }
      auto& [found, next] = std::get<GcePage>(page);
      std::move(found.begin(), found.end(), std::back_inserter(servers));
      if (next.empty()) {
        std::stable_sort(servers.begin(), servers.end(), [](const auto& a, const auto& b) {
          return a.uptime.value_or(Duration(0)) > b.uptime.value_or(Duration(0));
        });
        return servers;
      }
      token = std::move(next);
    }
    return ProviderError{ProviderErrorKind::kRate, "a list of servers without an end", {}, {}};
  }

  Capabilities capabilities() const override { return {kCountMax, true, true, true, true}; }

  std::string preview(const ServerRequest& request) const override {
    std::string text;
    for (std::uint32_t i = 0; i < std::min(request.count, kCountMax); ++i) {
      const Result<std::string> body = gce_insert_body(options_, request, i);
      text += body.ok()
                  ? fmt::format("POST {}{}\n{}\n", base(), insert_target(request, i), body.value())
                  : fmt::format("nothing: {}\n", body.error().detail);
    }
    return text;
  }

  std::vector<Finding> examine() override {
    std::vector<Finding> findings;
    const Answer<std::string> token = tokens_.token();
    const ProviderError* const no_token = std::get_if<ProviderError>(&token);
    findings.push_back({no_token == nullptr, no_token == nullptr
                                                 ? "access token from " + tokens_.source()
                                                 : no_token->detail});
    if (no_token != nullptr) {
      return findings;
    }
    look(findings, base(), "project " + options_.project);
    look(findings, base() + "/aggregated/instances?maxResults=1", "permission to list servers");
    look_at_offers(findings);
    look(findings, image_address(), "image " + options_.image);
    return findings;
  }

 private:
  struct Insertion {
    std::string zone;
    GceOperation operation;
    ServerStatus server;
  };

  [[nodiscard]] std::string base() const {
    return fmt::format("{}/compute/v1/projects/{}", options_.endpoint, options_.project);
  }

  [[nodiscard]] std::string zone_of(const ServerRequest& request) const {
    return request.offer.zone.empty() ? options_.zone : request.offer.zone;
  }

  [[nodiscard]] std::string insert_target(const ServerRequest& request, std::uint32_t index) const {
    return fmt::format("/zones/{}/instances?requestId={}", zone_of(request),
                       gce_insert_id(request.request_id, index));
  }

  /// Compute Engine's clock, by the answer, else ours.
  [[nodiscard]] std::int64_t now_of(const HttpResponse& answer) const {
    const std::optional<std::string_view> date = answer.header("Date");
    return (date ? parse_http_date(*date) : std::nullopt).value_or(unix_seconds_());
  }

  template <typename T>
  static Answer<T> or_unreadable(Result<T> parsed) {
    if (parsed.ok()) {
      return std::move(parsed).value();
    }
    return ProviderError{ProviderErrorKind::kRate, parsed.error().detail, {}, {}};
  }

  /// One call with a token and retries; a refused token is replaced once. Leaves the HTTP status in
  /// status_, 0 if there was no answer.
  Answer<HttpResponse> call(const std::string& method, const std::string& target,
                            const std::string& body, const std::string& what,
                            Duration answer_max = seconds(30)) {
    return call_at(method, base() + target, body, what, answer_max);
  }

  Answer<HttpResponse> call_at(const std::string& method, const std::string& address,
                               const std::string& body, const std::string& what,
                               Duration answer_max = seconds(30)) {
    status_ = 0;
    const Result<Url> url = parse_url(address);
    if (!url.ok()) {
      return ProviderError{ProviderErrorKind::kConfig, url.error().detail, {}, {}};
    }
    HttpLimits limits;
    limits.answer_max = answer_max;
    for (int attempt = 0;; ++attempt) {
      const Answer<std::string> token = tokens_.token();
      if (const ProviderError* const error = std::get_if<ProviderError>(&token)) {
        return *error;
      }
      const HttpRequest request{method,
                                url.value(),
                                {{"Authorization", "Bearer " + std::get<std::string>(token)},
                                 {"Accept", "application/json"},
                                 {"Content-Type", "application/json"}},
                                body};
      Result<HttpResponse> answer = send_with_retries(
          *sender_, limits, {}, [&] { return Result<HttpRequest>(request); }, worth_another_try);
      if (!answer.ok()) {
        ProviderError error = no_answer(answer.error());
        error.detail = what + ": " + error.detail;
        return error;
      }
      status_ = answer.value().status;
      if (status_ == 401 && attempt == 0) {
        tokens_.forget();
        continue;
      }
      if (status_ / 100 == 2) {
        return std::move(answer).value();
      }
      return gce_error(answer.value(), what);
    }
  }

  Answer<Insertion> insert(const ServerRequest& request, std::uint32_t index) {
    const Result<std::string> body = gce_insert_body(options_, request, index);
    if (!body.ok()) {
      return ProviderError{ProviderErrorKind::kConfig, body.error().detail, {}, {}};
    }
    Insertion insertion;
    insertion.zone = zone_of(request);
    insertion.server.id =
        fmt::format("{}/{}", insertion.zone, gce_server_name(request.request_id, index));
    insertion.server.state = ServerState::kStarting;
    insertion.server.request_id = request.request_id;
    insertion.server.offer = request.offer;
    insertion.server.offer.zone = insertion.zone;
    const Answer<HttpResponse> answer =
        call("POST", insert_target(request, index), body.value(), "asking for a server");
    if (const ProviderError* const error = std::get_if<ProviderError>(&answer)) {
      if (status_ != 409) {
        return *error;
      }
      insertion.operation.done = true;  // the server exists: an earlier answer was lost
      return insertion;
    }
    Answer<GceOperation> operation =
        or_unreadable(parse_gce_operation(std::get<HttpResponse>(answer).body));
    if (ProviderError* const error = std::get_if<ProviderError>(&operation)) {
      return std::move(*error);
    }
    insertion.operation = std::get<GceOperation>(std::move(operation));
    return insertion;
  }

  /// Waits for the operation. Missing answers are requested again until the deadline; an operation
  /// that is not finished then counts as a server that is starting.
  std::optional<ProviderError> finish(Insertion& insertion, Instant deadline) {
    GceOperation& operation = insertion.operation;
    while (!operation.done && monotonic_now() < deadline) {
      const Instant asked = monotonic_now();
      const Duration answer_max = std::min<Duration>(deadline - asked, seconds(125));
      const Answer<HttpResponse> answer =
          call("POST", fmt::format("/zones/{}/operations/{}/wait", insertion.zone, operation.name),
               "", "waiting for a server", answer_max);
      if (const HttpResponse* const response = std::get_if<HttpResponse>(&answer)) {
        if (Result<GceOperation> now = parse_gce_operation(response->body); now.ok()) {
          operation = std::move(now).value();
        }
      } else if (std::get<ProviderError>(answer).kind != ProviderErrorKind::kRate) {
        break;  // not allowed to read the operation: list() shows the result
      }
      // The call blocks at the server's end, if it likes; it may return at once.
      if (!operation.done && !sender_->pause(milliseconds(500))) {
        break;
      }
    }
    if (operation.error) {
      return operation.error;
    }
    if (operation.done) {
      const Answer<ServerStatus> now = status(insertion.server.id);
      if (const ServerStatus* const server = std::get_if<ServerStatus>(&now)) {
        insertion.server.state = server->state;
        insertion.server.uptime = server->uptime;
        insertion.server.detail = server->detail;
      }
    }
    return std::nullopt;
  }

  /// Returns the answer's body; empty if it is an error, which is a finding then.
  std::string look(std::vector<Finding>& findings, const std::string& address,
                   const std::string& what) {
    const Answer<HttpResponse> answer = call_at("GET", address, "", what);
    const ProviderError* const error = std::get_if<ProviderError>(&answer);
    findings.push_back({error == nullptr, error == nullptr ? what : error->detail});
    return error == nullptr ? std::get<HttpResponse>(answer).body : "";
  }

  /// Their zones, what machines those have, and how many of them we may have.
  void look_at_offers(std::vector<Finding>& findings) {
    std::map<std::string, std::set<std::string>> types_by_zone;
    if (!options_.zone.empty()) {
      types_by_zone[options_.zone];
    }
    for (const Offer& offer : options_.offers) {
      const std::string& zone = offer.zone.empty() ? options_.zone : offer.zone;
      types_by_zone[zone].insert(offer.machine_type.substr(0, offer.machine_type.find('+')));
    }
    std::set<std::string> regions;
    for (const auto& [zone, types] : types_by_zone) {
      const std::string place = base() + "/zones/" + percent_encode(zone);
      if (look(findings, place, "zone " + zone).empty()) {
        continue;
      }
      regions.insert(zone.substr(0, zone.rfind('-')));
      for (const std::string& type : types) {
        look(findings, place + "/machineTypes/" + percent_encode(type),
             fmt::format("machine type {} in {}", type, zone));
      }
    }
    for (const std::string& region : regions) {
      look_at_quotas(findings, region);
    }
  }

  void look_at_quotas(std::vector<Finding>& findings, const std::string& region) {
    const std::string body = look(findings, base() + "/regions/" + region, "region " + region);
    if (const Result<std::vector<GceQuota>> quotas = parse_gce_quotas(body); quotas.ok()) {
      for (Finding& finding : judge_gce_quotas(region, quotas.value(), options_.offers)) {
        findings.push_back(std::move(finding));
      }
    }
  }

  /// An image may be another project's, or be given with the address of the interface before it.
  [[nodiscard]] std::string image_address() const {
    const std::size_t at = options_.image.find("projects/");
    return at == std::string::npos
               ? fmt::format("{}/{}", base(), options_.image)
               : fmt::format("{}/compute/v1/{}", options_.endpoint, options_.image.substr(at));
  }

  const GceOptions options_;
  const std::unique_ptr<HttpSender> sender_;
  const std::function<std::int64_t()> unix_seconds_;
  GoogleTokens tokens_;
  int status_ = 0;  // of the last call; see call()
};

}  // namespace

Result<std::unique_ptr<Provider>> make_gce_provider(GceOptions options, GoogleTokenOptions tokens,
                                                    std::unique_ptr<HttpSender> sender,
                                                    std::function<std::int64_t()> unix_seconds,
                                                    std::shared_ptr<SharedGoogleToken> token) {
  TRY(check(options));
  if (!parse_url(options.endpoint).value().safe_for_secrets()) {
    return Error{Errc::kInvalidInput, "the endpoint of Compute Engine must be https://"};
  }
  return std::unique_ptr<Provider>(
      std::make_unique<GceProvider>(std::move(options), std::move(tokens), std::move(sender),
                                    std::move(unix_seconds), std::move(token)));
}

}  // namespace mayfly::cloud_hooks
