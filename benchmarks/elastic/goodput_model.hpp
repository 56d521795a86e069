#pragma once

// The arithmetic of `mayfly bench goodput`: how much a job with an ideal recovery would have
// computed, how long each change really stopped the job, and the cost of such stops in a real
// market, which changes more slowly. Traces of spot markets are rows "milliseconds,add|remove,node"
// in the order of their times, as published with Bamboo (NSDI 2023). Pure.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "benchmarks/elastic/step_log.hpp"
#include "elastic/core/coordinator.hpp"

namespace mayfly::bench {

struct SpotRow {
  std::uint64_t ms = 0;
  bool add = true;  ///< otherwise removed
  std::string node;
};

/// Empty lines and lines that begin with '#' are skipped. kInvalidInput names the line and the
/// fault: not three fields, no number, an unknown kind, a time before that of the previous line, a
/// node that is added twice or removed without being present.
[[nodiscard]] Result<std::vector<SpotRow>> parse_spot_trace(std::string_view text);

/// The number of nodes from a moment on.
struct SpotLevel {
  std::uint64_t ms = 0;
  std::uint32_t nodes = 0;
  bool lost = false;  ///< at least one node was lost at this moment

  friend bool operator==(const SpotLevel&, const SpotLevel&) = default;
};

/// One level for each moment at which the number of nodes changes.
[[nodiscard]] std::vector<SpotLevel> levels_of(const std::vector<SpotRow>& rows);

/// The same market with at most `nodes_max` nodes: each count in proportion, rounded, at least one;
/// moments at which the smaller market does not change are left out.
[[nodiscard]] std::vector<SpotLevel> scaled(const std::vector<SpotLevel>& levels,
                                            std::uint32_t nodes_max);

/// The number of workers that were alive (loaded, and not yet killed) from a moment on.
struct AliveSince {
  Instant when;
  std::uint32_t workers = 0;
};

/// Samples per second by number of members, from undisturbed steps of the run. For a number without
/// a measurement the nearest smaller one is used, or else the nearest larger one.
class Rates {
 public:
  explicit Rates(const std::vector<LoggedStep>& steps);
  [[nodiscard]] double at(std::uint32_t members) const;
  [[nodiscard]] const std::map<std::uint32_t, double>& measured() const { return rates_; }

 private:
  std::map<std::uint32_t, double> rates_;
};

/// The samples of a job that always trains at the rate of the live workers, between two moments.
[[nodiscard]] double ideal_samples(const std::vector<AliveSince>& alive, const Rates& rates,
                                   Instant begin, Instant end);

/// How much longer the step across a change of view took than an undisturbed one of the new view,
/// in seconds, redone work included; 0 if it took less. Nothing if it was not measured: the view
/// made no step, or no other step of the run with as many members was undisturbed.
[[nodiscard]] std::optional<double> stall_seconds(const elastic::Recovery& recovery,
                                                  const std::vector<LoggedStep>& steps);

/// The stalls of one kind of change.
class Stalls {
 public:
  void add(std::optional<double> seconds);
  [[nodiscard]] std::size_t count() const { return measured_.size() + unmeasured_; }
  [[nodiscard]] std::size_t unmeasured() const { return unmeasured_; }
  /// The mean of the measured stalls; nothing if none was measured.
  [[nodiscard]] std::optional<double> mean_seconds() const;
  [[nodiscard]] std::optional<double> p99_seconds() const;

 private:
  std::vector<double> measured_;
  std::size_t unmeasured_ = 0;
};

/// Goodput of a job on the real market, 0 to 1: each moment at which nodes are added or removed
/// costs the mean stall of its kind. Nothing if a kind of change that occurs was not measured.
[[nodiscard]] std::optional<double> natural_goodput(const std::vector<SpotLevel>& market,
                                                    std::optional<double> loss_stall_s,
                                                    std::optional<double> join_stall_s);

}  // namespace mayfly::bench
