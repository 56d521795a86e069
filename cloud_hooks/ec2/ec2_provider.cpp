#include "cloud_hooks/ec2/ec2_provider.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/try_assign.hpp"
#include "cloud_hooks/http/http_sender.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr std::uint32_t kCountMax = 64;  // as for Compute Engine; EC2 itself takes more

bool is_instance_id(const std::string& id) {
  return id.starts_with("i-") && id.size() <= 32 &&
         std::all_of(id.begin() + 2, id.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_unknown(const std::string& code) {
  return code == "InvalidInstanceID.NotFound" || code == "InvalidInstanceID.Malformed";
}

class Ec2Provider final : public Provider {
 public:
  Ec2Provider(Ec2Options options, Url endpoint, AwsCredentialOptions credentials,
              std::unique_ptr<HttpSender> sender, std::function<std::int64_t()> unix_seconds,
              std::shared_ptr<Ec2Promises> promises, std::shared_ptr<SharedAwsRole> role)
      : options_(std::move(options)),
        endpoint_(std::move(endpoint)),
        sender_(std::move(sender)),
        unix_seconds_(std::move(unix_seconds)),
        credentials_(std::move(credentials), *sender_, unix_seconds_, std::move(role)),
        promises_(std::move(promises)) {}

  RequestOutcome request(const ServerRequest& request) override {
    ServerRequest bounded = request;
    bounded.count = std::min(request.count, kCountMax);
    const Result<Ec2Form> form = ec2_run_form(options_, bounded);
    if (!form.ok()) {
      return ProviderError{ProviderErrorKind::kConfig, form.error().detail};
    }
    Answer<HttpResponse> answer = call(form.value(), "requesting servers");
    if (!answer.ok()) {
      return code_ == "IdempotentInstanceTerminated" ? ended_already(request.request_id)
                                                     : RequestOutcome(std::move(answer).error());
    }
    TRY_ASSIGN(ServerPage page, instances_in(answer.value()));
    RequestOutcome outcome{std::move(page.servers), std::nullopt};
    for (ServerStatus& server : outcome.servers) {
      server.request_id = request.request_id;
      promises_->add(monotonic_now(), server);
    }
    if (outcome.servers.size() < bounded.count) {
      outcome.error = ProviderError{ProviderErrorKind::kCapacity,
                                    fmt::format("requesting servers: {} of {} are available",
                                                outcome.servers.size(), bounded.count)};
    }
    return outcome;
  }

  std::optional<ProviderError> release(const std::string& id) override {
    if (!is_instance_id(id)) {
      return std::nullopt;
    }
    const Answer<HttpResponse> answer =
        call(ec2_server_form("TerminateInstances", id), "releasing " + id);
    if (!answer.ok() && is_unknown(code_) && promises_->find(monotonic_now(), id)) {
      return ProviderError{ProviderErrorKind::kRate, id + " is too new to be released"};
    }
    return answer.ok() || is_unknown(code_) ? std::nullopt : std::optional(answer.error());
  }

  Answer<ServerStatus> status(const std::string& id) override {
    ServerStatus gone;
    gone.id = id;
    if (!is_instance_id(id)) {
      return gone;
    }
    const Answer<HttpResponse> answer =
        call(ec2_server_form("DescribeInstances", id), "asking for " + id);
    if (!answer.ok()) {
      return is_unknown(code_) ? Answer<ServerStatus>(promised_or(gone))
                               : Answer<ServerStatus>(answer.error());
    }
    TRY_ASSIGN(ServerPage page, instances_in(answer.value()));
    for (ServerStatus& server : page.servers) {
      if (server.id == id) {
        promises_->known(id);
        return std::move(server);
      }
    }
    return promised_or(gone);
  }

  Answer<std::vector<ServerStatus>> list() override {
    TRY_ASSIGN(std::vector<ServerStatus> servers,
               list_pages([this](const std::string& token) -> Answer<ServerPage> {
                 TRY_ASSIGN(const HttpResponse answer,
                            call(ec2_list_form(options_, token), "listing servers"));
                 return instances_in(answer);
               }));
    return with_promised(std::move(servers));
  }

  Capabilities capabilities() const override { return {kCountMax, true}; }

  std::string preview(const ServerRequest& request) const override {
    const Result<Ec2Form> form = ec2_run_form(options_, request);
    if (!form.ok()) {
      return fmt::format("nothing: {}\n", form.error().detail);
    }
    std::string text = fmt::format("POST {}\n", endpoint_.text());
    for (const auto& [name, value] : form.value()) {
      text += fmt::format("{}={}\n", name, value);
    }
    return text;
  }

  std::vector<Finding> examine() override {
    std::vector<Finding> findings;
    const Answer<AwsCredentials> keys = credentials_.credentials();
    findings.push_back(
        {keys.ok(), keys.ok() ? "keys from " + credentials_.source() : keys.error().detail});
    if (!keys.ok()) {
      return findings;
    }
    const Answer<std::vector<ServerStatus>> listed = list();
    findings.push_back(
        {listed.ok(), listed.ok() ? "permission to list servers" : listed.error().detail});
    if (options_.machine_type.empty()) {
      return findings;
    }
    ServerRequest trial;
    trial.request_id = "00000000-0000-4000-8000-000000000000";
    trial.offer.machine_type = options_.machine_type;
    Result<Ec2Form> form = ec2_run_form(options_, trial);
    if (!form.ok()) {
      findings.push_back({false, form.error().detail});
      return findings;
    }
    // EC2 answers a dry run with an error in either case: DryRunOperation if it would succeed.
    form.value().emplace_back("DryRun", "true");
    const Answer<HttpResponse> answer = call(form.value(), "trying a request without effect");
    const bool allowed = answer.ok() || code_ == "DryRunOperation";
    findings.push_back({allowed, allowed ? "permission to start " + options_.machine_type +
                                               " with " + options_.image
                                         : answer.error().detail});
    return findings;
  }

 private:
  [[nodiscard]] ServerStatus promised_or(const ServerStatus& gone) const {
    return promises_->find(monotonic_now(), gone.id).value_or(gone);
  }

  /// Adds servers that were just created and that EC2 does not list yet.
  [[nodiscard]] std::vector<ServerStatus> with_promised(std::vector<ServerStatus> servers) {
    for (const ServerStatus& server : servers) {
      promises_->known(server.id);
    }
    for (ServerStatus& server : promises_->all(monotonic_now())) {
      servers.push_back(std::move(server));
    }
    sort_oldest_first(servers);
    return servers;
  }

  /// The request was carried out before, and its servers have ended since. EC2 never starts servers
  /// twice for one client token, so only a request with another id gets new ones.
  RequestOutcome ended_already(const std::string& request_id) {
    RequestOutcome outcome;
    outcome.error = ProviderError{ProviderErrorKind::kCapacity,
                                  "the servers of this request have ended already"};
    Answer<std::vector<ServerStatus>> all = list();
    if (all.ok()) {
      std::copy_if(all.value().begin(), all.value().end(), std::back_inserter(outcome.servers),
                   [&](const ServerStatus& server) { return server.request_id == request_id; });
    }
    return outcome;
  }

  [[nodiscard]] std::int64_t now() const { return unix_seconds_() + clock_offset_; }

  Answer<ServerPage> instances_in(const HttpResponse& answer) const {
    return or_unreadable(parse_ec2_instances(answer.body, now()));
  }

  /// True if EC2's clock differs from this machine's; signatures use EC2's time from now on.
  bool learn_time(const HttpResponse& answer) {
    constexpr std::int64_t kTolerated = 60;
    const std::optional<std::int64_t> theirs = answer.date();
    if (!theirs || std::llabs(*theirs - now()) <= kTolerated) {
      return false;
    }
    clock_offset_ = *theirs - unix_seconds_();
    return true;
  }

  /// One signed call with retries. If EC2 refuses keys or time, both are determined again, once.
  /// Leaves EC2's error code in code_, empty if there was none.
  Answer<HttpResponse> call(const Ec2Form& form, const std::string& what) {
    code_.clear();
    for (int attempt = 0;; ++attempt) {
      TRY_ASSIGN(const AwsCredentials keys, credentials_.credentials());
      const auto make = [&]() -> Result<HttpRequest> {
        HttpRequest request{"POST",
                            endpoint_,
                            {{"Content-Type", "application/x-www-form-urlencoded; charset=utf-8"}},
                            form_encode(form)};
        aws_sign(request, keys, {options_.region, "ec2"}, now());
        return request;
      };
      Result<HttpResponse> answer = send_with_retries(*sender_, {}, make, worth_retrying);
      if (!answer.ok()) {
        ProviderError error = no_answer(answer.error());
        error.detail = what + ": " + error.detail;
        return error;
      }
      if (answer.value().status / 100 == 2) {
        return std::move(answer).value();
      }
      Ec2Error error = parse_ec2_error(answer.value(), what);
      // UnauthorizedOperation: keys and time are right, but the account lacks the permission.
      if (error.error.kind == ProviderErrorKind::kAuth && attempt == 0 &&
          error.code != "UnauthorizedOperation") {
        learn_time(answer.value());
        credentials_.forget();
        continue;
      }
      code_ = error.code;
      error.error.detail = credentials_.without_secrets(std::move(error.error.detail));
      return std::move(error.error);
    }
  }

  /// EC2 also reports a lack of capacity with 5xx, which is not repeated: it will not change within
  /// seconds.
  static std::optional<Duration> worth_retrying(const Result<HttpResponse>& answer) {
    const bool no_stock = answer.ok() && parse_ec2_error(answer.value(), "").error.kind ==
                                             ProviderErrorKind::kCapacity;
    return no_stock ? std::nullopt : worth_another_try(answer);
  }

  const Ec2Options options_;
  const Url endpoint_;
  const std::unique_ptr<HttpSender> sender_;
  const std::function<std::int64_t()> unix_seconds_;
  AwsCredentialSource credentials_;
  const std::shared_ptr<Ec2Promises> promises_;  // with the job's other provider objects
  std::int64_t clock_offset_ = 0;                // seconds from our clock to EC2's
  std::string code_;                             // of the last call; see call()
};

}  // namespace

void Ec2Promises::add(Instant now, const ServerStatus& server) {
  const std::lock_guard lock(mutex_);
  std::erase_if(promises_,
                [&](const auto& entry) { return now - entry.second.made >= kUnknownMax; });
  promises_.insert_or_assign(server.id, Promise{now, server});
}

void Ec2Promises::known(const std::string& id) {
  const std::lock_guard lock(mutex_);
  promises_.erase(id);
}

std::optional<ServerStatus> Ec2Promises::find(Instant now, const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = promises_.find(id);
  return found != promises_.end() && now - found->second.made < kUnknownMax
             ? std::optional(found->second.server)
             : std::nullopt;
}

std::vector<ServerStatus> Ec2Promises::all(Instant now) const {
  const std::lock_guard lock(mutex_);
  std::vector<ServerStatus> servers;
  for (const auto& [id, promise] : promises_) {
    if (now - promise.made < kUnknownMax) {
      servers.push_back(promise.server);
    }
  }
  return servers;
}

Result<std::unique_ptr<Provider>> make_ec2_provider(Ec2Options options,
                                                    AwsCredentialOptions credentials,
                                                    std::unique_ptr<HttpSender> sender,
                                                    std::function<std::int64_t()> unix_seconds,
                                                    std::shared_ptr<Ec2Promises> promises,
                                                    std::shared_ptr<SharedAwsRole> role) {
  TRY(check(options));
  const Result<Url> endpoint = parse_url(
      options.endpoint.empty() ? fmt::format("https://ec2.{}.amazonaws.com/", options.region)
                               : options.endpoint);
  if (!endpoint.ok() || !endpoint.value().safe_for_secrets()) {
    return Error{Errc::kInvalidInput, "the endpoint of EC2 must be https://"};
  }
  if (promises == nullptr) {
    promises = std::make_shared<Ec2Promises>();
  }
  return std::unique_ptr<Provider>(std::make_unique<Ec2Provider>(
      std::move(options), endpoint.value(), std::move(credentials), std::move(sender),
      std::move(unix_seconds), std::move(promises), std::move(role)));
}

}  // namespace mayfly::cloud_hooks
