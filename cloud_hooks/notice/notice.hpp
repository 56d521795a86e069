#pragma once

// Notices: a cloud announces that it will take this server away, and may withdraw the announcement.
// Parses the notices of each cloud and decides when a worker should act. Pure: the text that was
// read and the time are arguments. Any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/time.hpp"

namespace mayfly::cloud_hooks {

struct Notice {
  Duration time_left{};  ///< until the server is taken; 0 = at any moment
  std::string detail;    ///< a readable reason
  /// The id of Azure's event, if it concerns only this machine: Azure may be told to start it
  /// early.
  std::string event_id{};

  friend bool operator==(const Notice&, const Notice&) = default;
};

/// The current answer of a source; nothing = this server stays, and an earlier notice is withdrawn.
using Announced = std::optional<Notice>;

// Times are seconds since 1970 by the clock of the source. All functions fail with kCorrupt if the
// text is not of the expected form.

/// Compute Engine's instance/preempted: TRUE or FALSE. It names no time; it is 30 s for Spot.
[[nodiscard]] Result<Announced> parse_gce_preempted(std::string_view body);
/// EC2's spot/instance-action, a JSON object: action and time.
[[nodiscard]] Result<Announced> parse_ec2_action(std::string_view json, std::int64_t now);
/// EC2's events/recommendations/rebalance: a warning of higher risk, without a time.
[[nodiscard]] Result<Announced> parse_ec2_rebalance(std::string_view json);
/// Azure's scheduled events: the earliest one for the machine `name` that ends its work (Preempt,
/// Terminate, Reboot, Redeploy).
[[nodiscard]] Result<Announced> parse_azure_events(std::string_view json, std::string_view name,
                                                   std::int64_t now);
/// A file's content: empty, or on one line the seconds left when it was written, and a reason.
[[nodiscard]] Result<Announced> parse_notice_file(std::string_view text);

/// The source of notices, from the setting "notice".
struct NoticeSetting {
  enum class Kind : std::uint8_t { kNone, kGce, kEc2, kEc2Rebalance, kAzure, kFile };

  Kind kind = Kind::kNone;
  std::string place;  ///< kFile: the path; others: the metadata server's address, empty = usual
};

/// "" or none, gce, ec2, ec2-rebalance, azure (each also with ":http://HOST:PORT"), file:PATH.
/// kInvalidInput otherwise.
[[nodiscard]] Result<NoticeSetting> parse_notice_setting(std::string_view text);

/// Decides when to leave: at once if the end is near, otherwise two minutes before it, unless the
/// notice is withdrawn until then. Two minutes are the longest warning that clouds give for a
/// preemption, and the replacement is requested when the worker leaves.
class NoticeWatch {
 public:
  static constexpr Duration kLeaveBefore = seconds(120);

  /// A source was read. Do not call this if it could not be read, because that is not a withdrawal.
  /// Returns a line for the log if something has changed.
  [[nodiscard]] std::optional<std::string> update(Instant now, const Announced& announced);
  /// The time at which to leave; nothing = no notice requires it.
  [[nodiscard]] std::optional<Instant> leave_at() const { return leave_at_; }
  [[nodiscard]] const std::string& reason() const { return reason_; }

 private:
  std::optional<Instant> leave_at_;
  std::string reason_;
};

}  // namespace mayfly::cloud_hooks
