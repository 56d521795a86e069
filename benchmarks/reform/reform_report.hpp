#pragma once

// What `mayfly bench reform` makes of its measurements. Pure.

#include <cstdint>
#include <string>
#include <vector>

namespace mayfly::bench {

/// One change of view; milliseconds since just before the first member was told, each when the
/// last member came there.
struct ReformTrial {
  bool loss = false;  ///< a member was killed; else a planned change
  double heard_ms = 0;
  double stopped_ms = 0;  ///< the old view's group is gone
  double formed_ms = 0;
  double sum_ms = 0;    ///< the first sum of the new view was right
  double known_ms = 0;  ///< the driver has heard so: the figure that counts
};

/// JSON objects: one per trial, and per kind of change one with percentiles.
[[nodiscard]] std::string to_json_lines(const std::vector<ReformTrial>& trials,
                                        const std::string& backend, std::uint32_t ranks);

/// The percentiles for people.
[[nodiscard]] std::string to_text(const std::vector<ReformTrial>& trials,
                                  const std::string& backend, std::uint32_t ranks);

}  // namespace mayfly::bench
