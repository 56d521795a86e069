#include "cloud_hooks/gce/gce_provider.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/try_assign.hpp"
#include "cloud_hooks/gce/gce_messages.hpp"
#include "cloud_hooks/http/http_sender.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr std::uint32_t kCountMax = 64;  // each server is a request of its own
/// The fields of a list that parse_gce_page() reads. An answer with all of them would contain the
/// start-up script of each server, and exceed the limit of answers.
constexpr const char* kListFields =
    "nextPageToken,unreachables,items/*/warning/code,items/*/instances(name,zone,status,"
    "machineType,guestAccelerators,scheduling/provisioningModel,labels,lastStartTimestamp,"
    "creationTimestamp)";
/// Compute Engine answers operations.wait after two minutes at the latest.
constexpr Duration kWaitCallMax = seconds(125);

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

  /// Begins all insertions before it waits for one, so that they run at the same time.
  RequestOutcome request(const ServerRequest& request) override {
    RequestOutcome outcome;
    std::vector<Insertion> insertions;
    for (std::uint32_t i = 0; i < std::min(request.count, kCountMax); ++i) {
      Answer<Insertion> insertion = insert(request, i);
      if (!insertion.ok()) {
        outcome.error = std::move(insertion).error();
        break;
      }
      insertions.push_back(std::move(insertion).value());
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
    return answer.ok() || status_ == 404 ? std::nullopt : std::optional(answer.error());
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
    if (!answer.ok()) {
      return status_ == 404 ? Answer<ServerStatus>(gone) : answer.error();
    }
    return or_unreadable(parse_gce_instance(answer.value().body, now_of(answer.value())));
  }

  Answer<std::vector<ServerStatus>> list() override {
    return list_pages([this](const std::string& token) -> Answer<ServerPage> {
      std::vector<std::pair<std::string, std::string>> query = {
          {"filter", fmt::format("labels.mayfly-job=\"{}\"", options_.job)},
          {"maxResults", "500"},
          {"fields", kListFields}};
      if (!token.empty()) {
        query.emplace_back("pageToken", token);
      }
      TRY_ASSIGN(const HttpResponse answer,
                 call("GET", fmt::format("/aggregated/instances?{}", form_encode(query)), "",
                      "listing servers"));
      return or_unreadable(parse_gce_page(answer.body, now_of(answer), zones()));
    });
  }

  Capabilities capabilities() const override { return {kCountMax, true}; }

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
    findings.push_back(
        {token.ok(), token.ok() ? "access token from " + tokens_.source() : token.error().detail});
    if (!token.ok()) {
      return findings;
    }
    look(findings, base(), "project " + options_.project);
    look(findings, base() + "/aggregated/instances?maxResults=1", "permission to list servers");
    look_at_offers(findings);
    look(findings, image_address(), "image " + options_.image);
    return findings;
  }

 private:
  using Again = std::function<std::optional<Duration>(const Result<HttpResponse>&)>;
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

  /// The zones in which this job's servers may be.
  [[nodiscard]] std::set<std::string> zones() const {
    std::set<std::string> zones = {options_.zone};
    for (const Offer& offer : options_.offers) {
      zones.insert(offer.zone);
    }
    return zones;
  }

  [[nodiscard]] std::string insert_target(const ServerRequest& request, std::uint32_t index) const {
    return fmt::format("/zones/{}/instances?requestId={}", zone_of(request),
                       gce_insert_id(request.request_id, index));
  }

  /// Compute Engine's time from the answer, otherwise the local time.
  [[nodiscard]] std::int64_t now_of(const HttpResponse& answer) const {
    return answer.date().value_or(unix_seconds_());
  }

  /// One call with a token and retries; a refused token is replaced once. Leaves the HTTP status in
  /// status_, 0 if there was no answer.
  Answer<HttpResponse> call(const std::string& method, const std::string& target,
                            const std::string& body, const std::string& what,
                            Duration answer_max = seconds(30),
                            const Again& again = worth_another_try) {
    return call_at(method, base() + target, body, what, answer_max, again);
  }

  Answer<HttpResponse> call_at(const std::string& method, const std::string& address,
                               const std::string& body, const std::string& what,
                               Duration answer_max = seconds(30),
                               const Again& again = worth_another_try) {
    status_ = 0;
    const Result<Url> url = parse_url(address);
    if (!url.ok()) {
      return ProviderError{ProviderErrorKind::kConfig, url.error().detail};
    }
    HttpLimits limits;
    limits.answer_max = answer_max;
    for (int attempt = 0;; ++attempt) {
      TRY_ASSIGN(const std::string token, tokens_.token());
      const HttpRequest request{method,
                                url.value(),
                                {{"Authorization", "Bearer " + token},
                                 {"Accept", "application/json"},
                                 {"Content-Type", "application/json"}},
                                body};
      Result<HttpResponse> answer = send_with_retries(
          *sender_, limits, [&] { return Result<HttpRequest>(request); }, again);
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
      return ProviderError{ProviderErrorKind::kConfig, body.error().detail};
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
        call("POST", insert_target(request, index), body.value(), "requesting a server");
    if (!answer.ok()) {
      if (status_ != 409) {
        return answer.error();
      }
      insertion.operation.done = true;  // the server exists: an earlier answer was lost
      return insertion;
    }
    TRY_ASSIGN(insertion.operation, or_unreadable(parse_gce_operation(answer.value().body)));
    return insertion;
  }

  /// Waits for the operation. Only this function repeats the call until the deadline, because each
  /// may take minutes. If the operation is not finished then, its server counts as starting.
  std::optional<ProviderError> finish(Insertion& insertion, Instant deadline) {
    GceOperation& operation = insertion.operation;
    while (!operation.done && monotonic_now() < deadline) {
      const Instant asked = monotonic_now();
      const Duration answer_max = std::min<Duration>(deadline - asked, kWaitCallMax);
      const Answer<HttpResponse> answer =
          call("POST", fmt::format("/zones/{}/operations/{}/wait", insertion.zone, operation.name),
               "", "waiting for a server", answer_max,
               [](const Result<HttpResponse>&) { return std::optional<Duration>(); });
      if (answer.ok()) {
        if (Result<GceOperation> now = parse_gce_operation(answer.value().body); now.ok()) {
          operation = std::move(now).value();
        }
      } else if (answer.error().kind != ProviderErrorKind::kRate) {
        break;  // not allowed to read the operation: list() shows the result
      }
      // Compute Engine may hold the call until the operation is done, but may also answer at once.
      if (!operation.done && !sender_->pause(milliseconds(500))) {
        break;
      }
    }
    if (operation.error) {
      return operation.error;
    }
    if (operation.done) {
      const Answer<ServerStatus> now = status(insertion.server.id);
      if (now.ok()) {
        insertion.server.state = now.value().state;
        insertion.server.uptime = now.value().uptime;
        insertion.server.detail = now.value().detail;
      }
    }
    return std::nullopt;
  }

  /// Returns the answer's body; empty after an error, which is added to `findings`.
  std::string look(std::vector<Finding>& findings, const std::string& address,
                   const std::string& what) {
    const Answer<HttpResponse> answer = call_at("GET", address, "", what);
    findings.push_back({answer.ok(), answer.ok() ? what : answer.error().detail});
    return answer.ok() ? answer.value().body : "";
  }

  /// Checks the zones of the offers, the machine types of each zone, and the quotas for them.
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
  options.endpoint = before_path(std::move(options.endpoint));
  if (!parse_url(options.endpoint).value().safe_for_secrets()) {
    return Error{Errc::kInvalidInput, "the endpoint of Compute Engine must be https://"};
  }
  return std::unique_ptr<Provider>(
      std::make_unique<GceProvider>(std::move(options), std::move(tokens), std::move(sender),
                                    std::move(unix_seconds), std::move(token)));
}

}  // namespace mayfly::cloud_hooks
