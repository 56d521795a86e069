#pragma once

// What a listening socket tells people of the connections that it turns away: who and why, in one
// line each, and in few lines if there are many. Whoever can connect must not be able to fill a
// disk.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/time.hpp"

namespace mayfly {

/// Ten lines at once, then one per second.
class LineBudget {
 public:
  /// Nothing: no line now. Otherwise one may be written, and so many were left out before it.
  [[nodiscard]] std::optional<std::uint64_t> spend(Instant now);

 private:
  static constexpr std::uint64_t kLinesMax = 10;

  std::uint64_t lines_ = kLinesMax;  // that may be written now
  std::uint64_t left_out_ = 0;
  Instant refilled_{};
};

/// Of one door. Used by one thread at a time.
class RejectionLog {
 public:
  /// `door`: what people call it, for example "control port".
  explicit RejectionLog(std::string door) : door_(std::move(door)) {}

  /// Writes a line, or counts it for the next one.
  void turned_away(std::string_view who, std::string_view why);
  /// The same of somebody who belongs here and was told why not: a warning, which others do not
  /// crowd out, as the user waits for it.
  void refused(std::string_view who, std::string_view why);

 private:
  [[nodiscard]] std::string line(const std::string& what, std::string_view why,
                                 std::uint64_t left_out) const;

  std::string door_;
  LineBudget budget_;
  LineBudget refusals_;
};

/// Who is at the other end of a connected socket, for people: "10.0.0.7:4711", "[fe80::1]:4711", or
/// "process 4711 of user 1000" on this host. "somebody" if the system does not know any more.
[[nodiscard]] std::string peer_name(int fd);

}  // namespace mayfly
