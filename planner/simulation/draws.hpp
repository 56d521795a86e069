#pragma once

// The random numbers of one path. Every draw has a key of its own (path, offer, number of the
// server), so that all candidates get the same lifetimes for the same servers (common random
// numbers), and a path depends neither on earlier simulations nor on its thread. Pure.

#include <cstdint>

#include "base/random.hpp"
#include "planner/simulation/market.hpp"

namespace mayfly::planner {

/// The events in the life of a server, drawn when it is granted.
struct ServerFate {
  double runs_s = 0;  ///< instants since the job's begin
  double joins_s = 0;
  double dies_s = kNever;
  std::uint64_t serial = 0;  ///< unique on a path
};

class PathDraws {
 public:
  PathDraws(std::uint64_t seed, std::uint64_t path) : key_(CounterRandom(seed).split(path)) {}

  /// exp(log_sd * z) with a standard normal z that depends only on `name` and `index`.
  [[nodiscard]] double factor(const char* name, std::uint64_t index, double log_sd) const;
  /// Server number `grant` of the offer, requested at `asked_s`.
  [[nodiscard]] ServerFate server(const OfferModel& model, std::size_t offer, std::uint64_t grant,
                                  double asked_s, const JobModel& job) const;
  /// Whether request number `request` of the offer finds no capacity, and for how long.
  [[nodiscard]] std::optional<double> stock_out(const OfferModel& model, std::size_t offer,
                                                std::uint64_t request) const;
  [[nodiscard]] ShockStream shocks(const ZoneModel& zone, std::size_t index) const;
  /// Whether that shock takes that server.
  [[nodiscard]] bool is_taken(const Shock& shock, std::size_t zone, std::uint64_t serial) const;

 private:
  CounterRandom key_;
};

}  // namespace mayfly::planner
