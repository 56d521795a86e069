#pragma once

// Accepts connections of clients that have not proved yet that they belong to the job. It accepts a
// bounded number at once and logs rejected ones at a limited rate, so that a flood of connections
// neither blocks the accepting thread nor fills the disk with log lines. The listener decides how
// many unauthenticated connections are kept, and which one is closed for a new one.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/time.hpp"
#include "base/unique_fd.hpp"

namespace mayfly {

enum class AcceptEnd {
  kNoneWaits,      ///< every waiting connection was accepted
  kMoreMayWait,    ///< the bound was reached
  kNoDescriptors,  ///< connections wait, and the process has no descriptor for them
};
/// Without descriptors a listening socket stays readable; accept again after this time instead.
inline constexpr Duration kAcceptRetryDelay = milliseconds(100);

/// Accepts waiting connections of a listening socket that does not block, at most `bound`, and
/// passes each to `take`. kNoDescriptors leaves the reason in errno.
AcceptEnd accept_waiting(int listener, std::size_t bound,
                         const std::function<void(UniqueFd)>& take);

/// A readable name of the peer of a connected socket: "10.0.0.7:4711", "[fe80::1]:4711", or
/// "process 4711 of user 1000" on this host; "somebody" if the system cannot tell.
[[nodiscard]] std::string peer_name(int fd);

/// Allows ten lines at once, then one per second.
class LineBudget {
 public:
  /// If a line may be written now, the number of lines that were left out before it; otherwise
  /// nothing, and this line counts as left out.
  [[nodiscard]] std::optional<std::uint64_t> spend(Instant now);

 private:
  static constexpr std::uint64_t kLinesMax = 10;

  std::uint64_t lines_ = kLinesMax;  // number of lines that may be written now
  std::uint64_t left_out_ = 0;
  Instant refilled_{};
};

/// The log lines of one listening socket about connections that it rejects: peer and reason, one
/// line for each. One thread at a time.
class RejectionLog {
 public:
  /// `listener` is the name of the socket in the lines, for example "control port".
  explicit RejectionLog(std::string listener) : listener_(std::move(listener)) {}

  /// A connection that does not belong to the job was closed: writes a line, or counts it for the
  /// next one.
  void turned_away(std::string_view who, std::string_view why);
  /// A process with the job's token was refused, and has received the reason: writes a warning.
  /// Warnings have a limit of their own, so that unauthenticated clients cannot suppress a line
  /// that the user needs.
  void refused(std::string_view who, std::string_view why);

 private:
  [[nodiscard]] std::string line(const std::string& what, std::string_view why,
                                 std::uint64_t left_out) const;

  std::string listener_;
  LineBudget budget_;
  LineBudget refusals_;
};

}  // namespace mayfly
