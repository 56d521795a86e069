#pragma once

// The log lines of a listening socket about connections that it rejects: who and why, one line for
// each, at a limited rate, so that a client cannot fill the disk with log lines.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.hpp"

namespace mayfly {

/// Ten lines at once, then one per second.
class LineBudget {
 public:
  /// If a line may be written now, the number of lines that were left out before it; otherwise
  /// nothing, and this line counts as left out.
  [[nodiscard]] std::optional<std::uint64_t> spend(Instant now);

 private:
  static constexpr std::uint64_t kLinesMax = 10;

  std::uint64_t lines_ = kLinesMax;  // that may be written now
  std::uint64_t left_out_ = 0;
  Instant refilled_{};
};

/// The log of one listening socket. One thread at a time.
class RejectionLog {
 public:
  /// `door` is the name of the socket in the lines, for example "control port".
  explicit RejectionLog(std::string door) : door_(std::move(door)) {}

  /// A connection that does not belong to the job was closed: writes a line, or counts it for the
  /// next one.
  void turned_away(std::string_view who, std::string_view why);
  /// A process with the job's token was refused and told why: writes a warning. Warnings have a
  /// limit of their own, so that rejected strangers cannot suppress a line that the user waits for.
  void refused(std::string_view who, std::string_view why);

 private:
  [[nodiscard]] std::string line(const std::string& what, std::string_view why,
                                 std::uint64_t left_out) const;

  std::string door_;
  LineBudget budget_;
  LineBudget refusals_;
};

/// A readable name of the peer of a connected socket: "10.0.0.7:4711", "[fe80::1]:4711", or
/// "process 4711 of user 1000" on this host; "somebody" if the system does not know it any more.
[[nodiscard]] std::string peer_name(int fd);

}  // namespace mayfly
