#pragma once

// Measures the cost of a change of view for a coordinator with thousands of members: messages,
// bytes and processor time. The coordinator's machine and the messages are the product's. The
// members are not simulated; only their messages are.

#include <cstdint>
#include <string>
#include <vector>

namespace mayfly::sim {

struct ScaleOptions {
  std::uint32_t members = 1000;
  std::uint32_t changes = 10;  ///< of each kind
  std::uint64_t seed = 1;
};

/// The mean over changes of one kind.
struct ScaleRow {
  /// start, loss and join (also with members at different points of the step), leave, joins, loss
  /// of a tenth of the members
  std::string change;
  std::uint32_t members = 0;
  std::uint32_t changes = 0;
  double messages_in = 0;  ///< to the coordinator
  double messages_out = 0;
  double bytes_in = 0;
  double bytes_out = 0;
  double bytes_per_member_max = 0;  ///< the largest message that announced a view
  double full_view_bytes = 0;       ///< its size without deltas
  double machine_ms = 0;            ///< time in the coordinator's machine for all events
  double encode_ms = 0;             ///< time for encoding its messages
};

/// Makes the coordinator carry out changes of every kind. `now_ms` returns this thread's processor
/// time in milliseconds, for machine_ms and encode_ms.
[[nodiscard]] std::vector<ScaleRow> measure_scale(const ScaleOptions& options, double (*now_ms)());

}  // namespace mayfly::sim
