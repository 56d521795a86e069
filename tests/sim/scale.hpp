#pragma once

// One coordinator with thousands of members, and what a change of view costs it: messages, bytes
// and processor time. Members here are only what they say; the machine and the messages are real.

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
  /// start, loss and join (also with members that are apart: each elsewhere in the step), leave,
  /// joins, loss of a tenth
  std::string change;
  std::uint32_t members = 0;
  std::uint32_t changes = 0;
  double messages_in = 0;  ///< to the coordinator
  double messages_out = 0;
  double bytes_in = 0;
  double bytes_out = 0;
  double bytes_per_member_max = 0;  ///< the largest message that announced a view
  double full_view_bytes = 0;       ///< what that would be without deltas
  double machine_ms = 0;            ///< in the coordinator's machine, all events of the change
  double encode_ms = 0;             ///< of its messages
};

/// Drives the coordinator through changes of every kind. `now_ms`, milliseconds of this thread's
/// processor time, is for the two times.
[[nodiscard]] std::vector<ScaleRow> measure_scale(const ScaleOptions& options, double (*now_ms)());

}  // namespace mayfly::sim
