#pragma once

// The parts of a ReplacementPolicy without the policy, with a clock that a test sets, for tests of
// a single part together with the other ones.

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cloud_hooks/core/replacement_parts.hpp"

namespace mayfly::cloud_hooks::test_support {

struct PolicyParts : ReplacementParts {
  using ReplacementParts::ReplacementParts;

  /// Requests so many servers of an offer.
  std::string request(std::size_t offer, std::uint32_t count) {
    return requests.send(now, offer, count, Duration(0), {});
  }
  /// Adds a running server of the offer that belongs to no request. Its worker is `member`; 0 = it
  /// has none.
  void run(const std::string& id, std::size_t offer, std::uint64_t member = 0) {
    Fleet::Arrival arrival;
    arrival.offer = offer;
    arrival.asked = now;
    fleet.add(now, id, arrival);
    fleet.started(now, id);
    bill.open(id, catalog.terms(offer).price_per_hour, now);
    if (member > 0) {
      fleet.joined(now, MemberId{member}, id);
    }
  }
  /// The effects of one type since the last call of any of these functions.
  template <typename Effect>
  [[nodiscard]] std::vector<Effect> taken() {
    std::vector<Effect> all;
    for (PolicyEffect& effect : effects.take()) {
      if (Effect* one = std::get_if<Effect>(&effect)) {
        all.push_back(std::move(*one));
      }
    }
    return all;
  }
  /// The kinds of the events that were recorded.
  [[nodiscard]] std::vector<std::string> told() {
    std::vector<std::string> kinds;
    for (policy_effect::Note& note : taken<policy_effect::Note>()) {
      kinds.push_back(std::move(note.kind));
    }
    return kinds;
  }

  Instant now{1'000'000'000'000};
};

}  // namespace mayfly::cloud_hooks::test_support
