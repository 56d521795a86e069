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
  static constexpr double kSpeedChange = 0.05;        ///< or of a time of loading: worth a line,
  static constexpr double kSpeedInterval = 10;        ///< at most every so many seconds
  static constexpr std::size_t kViewsRemembered = 8;  ///< whose steps may be reported late

  /// Goes on from a line that an earlier process wrote.
  void restore(const MemberRecord& record);
  /// The steps of this view are computed by these shares.
  void view_published(const elastic::View& view);
  /// Keeps further facts about these members for their next lines, the last ones included: between
  /// two calls of look() a short job may begin and end.
  void introduced(const std::vector<elastic::MemberStatus>& members);
  /// A step of so many samples was committed in this view.
  void committed(std::uint64_t view, std::uint64_t samples);

  /// The line for a member that is new or comes again after its end, and loads. Nothing if it is
  /// known to be there.
  [[nodiscard]] std::optional<MemberRecord> connected(double t, std::uint64_t member,
                                                      const std::string& host);
  /// The line, if there is one, that follows from a note of the coordinator about the member.
  [[nodiscard]] std::vector<MemberRecord> heard(double t, const std::string& kind,
                                                std::uint64_t member, const std::string& detail);
  /// The lines that follow from the present state of the members.
  [[nodiscard]] std::vector<MemberRecord> look(double t,
                                               const std::vector<elastic::MemberStatus>& members);
  /// The line for a member's end; `how` is the kind of the event that tells it. Nothing if the
  /// member is not known, or has ended already.
  [[nodiscard]] std::optional<MemberRecord> ended(double t, std::uint64_t member,
                                                  const std::string& how, const std::string& why);
  /// When the job ends: lines for all members that are there, and once more the last lines of those
  /// whose last steps were reported after they had gone.
  [[nodiscard]] std::vector<MemberRecord> all_ended(double t);

 private:
  struct Known {
    MemberRecord last;    // that was written
    StagesRecord stages;  // of now; in the last line of the member, too
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

/// Whether a note of the coordinator with this kind tells the end of its member.
[[nodiscard]] bool is_end_of_member(const std::string& kind);

/// Bills each member from its connection to its end.
class MemberBill {
 public:
  /// `before`: what earlier processes of the job have spent, until now.
  MemberBill(double price_per_hour, double before)
      : price_per_hour_(price_per_hour), bill_(before, Duration(0)) {}

  /// A note of the coordinator about a member. True if it changes who is billed.
  bool heard(Instant when, const std::string& kind, std::uint64_t member);
  [[nodiscard]] Spending at(Instant now) const;
  /// The same if members are billed and, for kTellInterval, they have not changed and due() has not
  /// returned anything.
  [[nodiscard]] std::optional<Spending> due(Instant now);

  static constexpr Duration kTellInterval = seconds(60);

 private:
  double price_per_hour_;
  cloud_hooks::Bill bill_;
  std::set<std::uint64_t> open_;  // members
  Instant told_;                  // that `open_` changed, or due() gave the cost
};

}  // namespace mayfly::engine
