#pragma once

// Records about the members of a job: the lines of members.jsonl, and the cost of members for whose
// servers no provider sends a bill. Pure; one thread at a time. Times are seconds on the time axis
// of the run's records.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cloud_hooks/core/bill.hpp"
#include "elastic/core/member_status.hpp"
#include "elastic/core/view.hpp"
#include "engine/run/member_record.hpp"
#include "engine/run/records.hpp"

namespace mayfly::engine {

/// Decides which lines members.jsonl gets: one whenever a member's phase or share of a step
/// changes, one when its speed has changed, and one at its end.
class MemberJournal {
 public:
  static constexpr double kSpeedChange = 0.05;  ///< relative, also of a loading time: worth a line,
  static constexpr double kSpeedInterval = 10;  ///< but at most one in so many seconds
  static constexpr std::size_t kViewsRemembered = 8;  ///< their steps may be reported late

  /// Continues from a line that an earlier process wrote.
  void restore(const MemberRecord& record);
  /// Remembers the members' shares in the steps of this view.
  void view_published(const elastic::View& view);
  /// Keeps further facts about these members for their next lines, including their last ones: a
  /// short job may begin and end between two calls of look().
  void introduced(const std::vector<elastic::MemberStatus>& members);
  /// A step with this number of samples was committed in this view.
  void committed(std::uint64_t view, std::uint64_t samples);

  /// The line for a member that is new, or returns after its end, and is loading. Nothing if the
  /// member is already known as present.
  [[nodiscard]] std::optional<MemberRecord> connected(double t, std::uint64_t member,
                                                      const std::string& host);
  /// The line, if any, to write after a note of the coordinator about the member.
  [[nodiscard]] std::vector<MemberRecord> on_note(double t, const std::string& kind,
                                                  std::uint64_t member, const std::string& detail);
  /// The lines for what changed in the present state of the members.
  [[nodiscard]] std::vector<MemberRecord> look(double t,
                                               const std::vector<elastic::MemberStatus>& members);
  /// The line for a member's end; `how` is the kind of the event that reports it. Nothing if the
  /// member is unknown or has ended already.
  [[nodiscard]] std::optional<MemberRecord> ended(double t, std::uint64_t member,
                                                  const std::string& how, const std::string& why);
  /// The lines to write when the job ends: the last line of each present member, and the last line
  /// again of each member whose last steps were reported after it had left.
  [[nodiscard]] std::vector<MemberRecord> all_ended(double t);

 private:
  struct Known {
    MemberRecord last;    // the last line that was written
    StagesRecord stages;  // present ones; also for the member's last line
    double samples = 0;   // its share of each step
    std::uint64_t steps = 0;
    bool has_ended = false;
  };
  struct Share {
    std::uint64_t member;
    std::uint32_t microbatches;
  };
  [[nodiscard]] static MemberRecord line_of(Known& known, double t, const std::string& phase);

  std::map<std::uint64_t, Known> members_;
  std::map<std::uint64_t, std::vector<Share>> views_;
};

/// Whether a note of the coordinator with this kind means that its member has ended.
[[nodiscard]] bool is_end_of_member(const std::string& kind);

/// Bills each member from its connection to its end.
class MemberBill {
 public:
  /// `before`: the cost of the job before this process, up to now.
  MemberBill(double price_per_hour, double before)
      : price_per_hour_(price_per_hour), bill_(before, Duration(0)) {}

  /// Handles a note of the coordinator about a member. Returns true if it changes which members are
  /// billed.
  bool on_note(Instant when, const std::string& kind, std::uint64_t member);
  [[nodiscard]] Spending at(Instant now) const;
  /// The same if members are billed, and for kCostInterval neither the set of billed members has
  /// changed nor due() has returned a cost.
  [[nodiscard]] std::optional<Spending> due(Instant now);

  static constexpr Duration kCostInterval = seconds(60);

 private:
  double price_per_hour_;
  cloud_hooks::Bill bill_;
  std::set<std::uint64_t> open_;  // members
  Instant last_cost_at_;          // when `open_` changed or due() returned a cost
};

}  // namespace mayfly::engine
