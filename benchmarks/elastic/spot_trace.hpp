#pragma once

// Traces of spot markets: rows "milliseconds,add|remove,node" in the order of their times, as
// published with Bamboo (NSDI 2023). Pure.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace mayfly::bench {

struct SpotRow {
  std::uint64_t ms = 0;
  bool add = true;  ///< otherwise removed
  std::string node;
};

/// Empty lines and lines that begin with '#' are skipped. kInvalidInput names the line and what is
/// wrong: not three fields, no number, no such kind, times that go back, a node that is there twice
/// or is not there.
[[nodiscard]] Result<std::vector<SpotRow>> parse_spot_trace(std::string_view text);

/// How many nodes there are from a moment on.
struct SpotLevel {
  std::uint64_t ms = 0;
  std::uint32_t nodes = 0;
  bool lost = false;  ///< at least one went away at this moment

  friend bool operator==(const SpotLevel&, const SpotLevel&) = default;
};

/// One level per moment at which something happens.
[[nodiscard]] std::vector<SpotLevel> levels_of(const std::vector<SpotRow>& rows);

/// The same market with at most `nodes_max` nodes: each count in proportion, rounded, at least one;
/// moments at which the smaller market does not change are left out.
[[nodiscard]] std::vector<SpotLevel> scaled(const std::vector<SpotLevel>& levels,
                                            std::uint32_t nodes_max);

}  // namespace mayfly::bench
