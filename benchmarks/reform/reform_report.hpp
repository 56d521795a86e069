#pragma once

// The output of `mayfly bench reform`. Pure.

#include <cstdint>
#include <string>
#include <vector>

namespace mayfly::bench {

/// One change of view. Times are in milliseconds from just before the first member was told until
/// the last member reached the stage.
struct ReformTrial {
  bool loss = false;  ///< a member was killed; otherwise a planned change
  double heard_ms = 0;
  double stopped_ms = 0;  ///< the old view's group has ended
  double formed_ms = 0;
  double sum_ms = 0;    ///< the first sum of the new view was right
  double known_ms = 0;  ///< the driver has received that report; the result that counts
};

/// JSON objects: one per trial, and per kind of change one with percentiles.
[[nodiscard]] std::string to_json_lines(const std::vector<ReformTrial>& trials,
                                        const std::string& backend, std::uint32_t ranks);

/// The percentiles as a table.
[[nodiscard]] std::string to_text(const std::vector<ReformTrial>& trials,
                                  const std::string& backend, std::uint32_t ranks);

}  // namespace mayfly::bench
