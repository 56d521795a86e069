#pragma once

// When to share out the microbatches anew although nobody came or went: speeds change. Every change
// stops the view for a moment, so it must promise a gain, the promise must hold for a while, and
// changes that do not help become rarer. Pure.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.hpp"

namespace mayfly::elastic {

struct RebalanceOptions {
  bool enabled = true;
  double gain_min = 0.15;           ///< part of the slowest member's time that must be saved
  Duration sustained = seconds(1);  ///< for so long the gain is seen before anything is changed
  Duration interval = seconds(5);   ///< between two changes at first; doubles if they are frequent
  Duration interval_max = seconds(320);
  Duration repaid_within = seconds(60);  ///< what a change costs must be gained back so soon
};

/// One member's part of a step, by rank.
struct Load {
  float microbatch_ms = 0;  ///< measured; 0 = unknown
  std::uint32_t count = 0;  ///< microbatches per step
};

/// What a new assignment would bring.
struct Rebalance {
  float before_ms = 0;  ///< compute time of the slowest member in a step, as it is
  float after_ms = 0;   ///< as it would be
  std::vector<std::uint32_t> counts;
};

class Rebalancer {
 public:
  explicit Rebalancer(RebalanceOptions options) : options_(options) {}

  /// A view was published, for whatever reason: a gain has to be seen anew.
  void view_began() { seen_since_.reset(); }
  /// From the boundary until all members went on, the last rebalance took so long.
  void change_took(Duration cost) { cost_ = cost; }
  /// To be asked every few milliseconds while a view runs undisturbed. The answer is what to change
  /// now; it counts as changed. Nothing while the time of any member is unknown.
  [[nodiscard]] std::optional<Rebalance> judge(Instant now, const std::vector<Load>& loads);

 private:
  [[nodiscard]] std::optional<Rebalance> worthwhile(const std::vector<Load>& loads) const;
  void changed(Instant now);

  RebalanceOptions options_;
  Duration cost_{};
  Duration interval_{};
  std::optional<Instant> seen_since_;
  std::optional<Instant> changed_at_;
};

}  // namespace mayfly::elastic
