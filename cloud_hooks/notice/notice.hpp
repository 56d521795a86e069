#pragma once

// Notices: a cloud says that it will take this server away, and may change its mind. How each says
// it, and when a worker should act on it. Pure: what was read and the time are given in. Any
// thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/time.hpp"

namespace mayfly::cloud_hooks {

struct Notice {
  Duration time_left{};  ///< until the server is taken; 0 = at any moment
  std::string detail;    ///< for people
  /// Azure's event, if it concerns this machine alone: may be told that it need not wait for us.
  std::string event_id{};

  friend bool operator==(const Notice&, const Notice&) = default;
};

/// What a source says now; nothing = this server stays, also if it said otherwise before.
using Announced = std::optional<Notice>;

// Times are seconds since 1970 by the clock of whoever is read. All fail with kCorrupt on what is
// not of the form.

/// Compute Engine's instance/preempted: TRUE or FALSE. It names no time; it is 30 s for Spot.
[[nodiscard]] Result<Announced> parse_gce_preempted(std::string_view body);
/// EC2's spot/instance-action, a JSON object: action and time.
[[nodiscard]] Result<Announced> parse_ec2_action(std::string_view json, std::int64_t now);
/// EC2's events/recommendations/rebalance: a warning of higher risk, without a time.
[[nodiscard]] Result<Announced> parse_ec2_rebalance(std::string_view json);
/// Azure's scheduled events: of those for the machine `name`, the one that comes first and ends the
/// machine's work (Preempt, Terminate, Reboot, Redeploy).
[[nodiscard]] Result<Announced> parse_azure_events(std::string_view json, std::string_view name,
                                                   std::int64_t now);
/// A file's content: empty, or on one line the seconds left when it was written, and a reason.
[[nodiscard]] Result<Announced> parse_notice_file(std::string_view text);

/// Where notices come from, by the setting "notice".
struct NoticeSetting {
  enum class Kind : std::uint8_t { kNone, kGce, kEc2, kEc2Rebalance, kAzure, kFile };

  Kind kind = Kind::kNone;
  std::string place;  ///< of kFile the path, else the metadata server's address; empty = usual
};

/// "" or none, gce, ec2, ec2-rebalance, azure (each also with ":http://HOST:PORT"), file:PATH.
/// kInvalidInput otherwise.
[[nodiscard]] Result<NoticeSetting> parse_notice_setting(std::string_view text);

/// When to leave: at once if the end is near, else two minutes before it, unless the notice is
/// withdrawn until then. Two minutes is what clouds give at most for a preemption, and a
/// replacement is asked for when we leave.
class NoticeWatch {
 public:
  static constexpr Duration kLeaveBefore = seconds(120);

  /// A source was read. What could not be read is no withdrawal: do not call this then. Returns a
  /// line for the log if something is new.
  [[nodiscard]] std::optional<std::string> heard(Instant now, const Announced& announced);
  /// Nothing = not as things stand.
  [[nodiscard]] std::optional<Instant> leave_at() const { return leave_at_; }
  [[nodiscard]] const std::string& reason() const { return reason_; }

 private:
  std::optional<Instant> leave_at_;
  std::string reason_;
};

}  // namespace mayfly::cloud_hooks
