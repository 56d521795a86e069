#pragma once

// A ReplacementPolicy with a clock that a test sets, and its last effects.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cloud_hooks/core/replacement_policy.hpp"

namespace mayfly::cloud_hooks::test_support {

inline Offer offer(const std::string& zone, Market market = Market::kSpot) {
  return {"gpu", zone, market};
}

inline ReplacementOptions two_zones() {
  ReplacementOptions options;
  options.target = 2;
  options.max = 8;
  options.offers = {{offer("a"), 1.0, 1.0}, {offer("b"), 2.0, 1.0}};
  options.provider.count_max = 10;
  return options;
}

/// The policy with a clock, and its last effects.
class PolicyHarness {
 public:
  explicit PolicyHarness(ReplacementOptions options) : policy_(std::move(options)) {
    feed(policy_event::Begin{});
  }

  /// Passes one event to the policy. Its effects replace the earlier ones.
  void feed(const PolicyEvent& event) {
    forget();
    feed_more(event);
  }
  /// Lets time pass, with ticks when the policy wants them. Their effects replace the earlier ones.
  void wait(Duration duration) {
    forget();
    const Instant end = now + duration;
    while (policy_.next_wake() && *policy_.next_wake() <= end) {
      now = *policy_.next_wake();
      feed_more(policy_event::Tick{});
    }
    now = end;
  }
  void grant(const policy_effect::Request& request) {
    RequestOutcome outcome;
    for (std::uint32_t i = 0; i < request.request.count; ++i) {
      outcome.servers.push_back(server("s" + std::to_string(++servers_made), request.request));
    }
    feed(policy_event::Answered{request.request.request_id, outcome});
  }
  void refuse(const policy_effect::Request& request, const ProviderError& error) {
    feed(policy_event::Answered{request.request.request_id, {{}, error}});
  }
  static ServerStatus server(const std::string& id, const ServerRequest& request) {
    ServerStatus status;
    status.id = id;
    status.state = ServerState::kRunning;
    status.request_id = request.request_id;
    status.offer = request.offer;
    return status;
  }
  /// Grants all present requests; the servers' workers join as members 1, 2, ...
  void settle() {
    const std::vector<policy_effect::Request> wanted = requests;
    for (const policy_effect::Request& request : wanted) {
      grant(request);
    }
    for (std::uint64_t i = 1; i <= servers_made; ++i) {
      feed(policy_event::Joined{MemberId{i}, "s" + std::to_string(i)});
    }
  }
  [[nodiscard]] PolicyStatus status() const { return policy_.status(now); }
  [[nodiscard]] Composition composition() const { return policy_.composition(now); }
  [[nodiscard]] bool settled() const { return policy_.settled(); }
  /// The text of the last event of this kind; "" if there was none.
  [[nodiscard]] std::string text_of(const std::string& kind) const {
    const auto found = std::find(told.rbegin(), told.rend(), kind);
    return found == told.rend() ? ""
                                : details.at(static_cast<std::size_t>(told.rend() - found) - 1);
  }
  [[nodiscard]] bool was_told(const std::string& kind) const {
    return std::find(told.begin(), told.end(), kind) != told.end();
  }

  Instant now{1'000'000'000'000};
  std::uint64_t servers_made = 0;
  std::vector<policy_effect::Request> requests;
  std::vector<std::string> releases;
  std::vector<MemberId> drains;
  std::vector<std::string> told;
  std::vector<std::string> details;  // the texts of `told`
  bool stopped = false;

 private:
  void forget() {
    requests.clear();
    releases.clear();
    drains.clear();
    told.clear();
    details.clear();
    stopped = false;
  }
  void feed_more(const PolicyEvent& event) {
    for (const PolicyEffect& effect : policy_.handle(now, event)) {
      if (const auto* request = std::get_if<policy_effect::Request>(&effect)) {
        requests.push_back(*request);
      } else if (const auto* release = std::get_if<policy_effect::Release>(&effect)) {
        releases.push_back(release->server);
      } else if (const auto* drain = std::get_if<policy_effect::Drain>(&effect)) {
        drains.push_back(drain->member);
      } else if (const auto* note = std::get_if<policy_effect::Note>(&effect)) {
        told.push_back(note->kind);
        details.push_back(note->detail);
      } else if (std::holds_alternative<policy_effect::StopJob>(effect)) {
        stopped = true;
      }
    }
  }

  ReplacementPolicy policy_;
};

/// A list of the provider with exactly these running servers.
inline policy_event::Listed listed(const std::vector<std::string>& ids) {
  std::vector<ServerStatus> servers;
  for (const std::string& id : ids) {
    servers.push_back(PolicyHarness::server(id, {}));
  }
  return {servers};
}

inline ProviderError error_of(ProviderErrorKind kind) {
  return {kind, "because"};
}

}  // namespace mayfly::cloud_hooks::test_support
