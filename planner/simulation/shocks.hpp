#pragma once

// Shocks: moments at which a zone loses a share of its servers at once. They come at a constant
// rate, or from blocks of a recorded trace that are drawn with replacement (a block bootstrap:
// events inside a block stay together, because losses come in bursts). Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "planner/distributions.hpp"

namespace mayfly::planner {

struct Shock {
  double at_s = kNever;
  double share = 0;          ///< chance of each running server of the zone to be taken
  std::uint64_t number = 0;  ///< of the zone, from 0
};

/// The shocks of one zone. With blocks, these replace the rate.
struct ShockModel {
  double per_hour = 0;
  double share = 0;
  /// Each block has the shocks of `block_s` seconds of a trace, by their time within the block.
  std::vector<std::vector<Shock>> blocks;
  double block_s = 0;

  [[nodiscard]] bool is_calm() const;
  /// The rate at which shocks take one server that is always replaced.
  [[nodiscard]] double losses_per_s() const;
  /// A model with `factor` times the rate of shocks; with blocks, shocks take `factor` times the
  /// share of servers, at most all.
  [[nodiscard]] ShockModel scaled(double factor) const;
};

/// The shocks of one zone on one path, one after the other. `model` must outlive it.
class ShockStream {
 public:
  ShockStream(const ShockModel& model, CounterRandom key);
  /// The next shock; kNever if there are no more.
  [[nodiscard]] const Shock& next() const { return next_; }
  void pop();

 private:
  void pop_from_blocks();

  const ShockModel* model_;
  CounterRandom key_;
  Shock next_;
  std::uint64_t drawn_ = 0;   // gaps or blocks
  std::size_t block_ = 0;     // the present one
  std::size_t in_block_ = 0;  // the next shock of it
};

/// One line of a trace of servers.
struct TraceEvent {
  double at_s = 0;
  bool is_added = false;
  std::string node;
};

/// Cuts a trace, from its first event on, into blocks of `block_s` seconds, without an incomplete
/// last one. Removals within one second are one shock; its share is relative to the servers just
/// before.
[[nodiscard]] std::vector<std::vector<Shock>> shock_blocks(const std::vector<TraceEvent>& trace,
                                                           double block_s);

}  // namespace mayfly::planner
