#pragma once

// Decides which member to evict when groups keep breaking although every member is connected to the
// coordinator, because of a broken link or a faulty host. A member that is blamed may have left
// only because another one broke first, so blame is followed to its root before it counts. Pure;
// one thread.

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "elastic/core/membership.hpp"

namespace mayfly::elastic {

/// The report of one member when the view's group broke.
struct BreakReport {
  MemberId member{};
  bool failed = false;              ///< its group broke; otherwise it was told to stop
  bool finished = false;            ///< it had committed the job's last step
  std::optional<MemberId> culprit;  ///< the member it blames; itself: it cannot reach any other
  bool unanswered = false;          ///< packets to the culprit's host were not acknowledged
};

class BlameRecord {
 public:
  /// The group of a view broke by itself; `first` reported it before any member was told to stop.
  /// `reports` are those of all members of the view that are still connected. Returns the member to
  /// evict, if any:
  /// - `first`, if it blames itself;
  /// - a member that two members blame, or one member in three such views. Two views are enough if
  ///   packets stayed unacknowledged: a connection that broke may have broken because another one
  ///   did. Views in between may have broken elsewhere: if several links are bad, only the one that
  ///   is noticed first shows;
  /// - of two members that blame only each other, at once or in turns, the one with the larger id;
  /// - a member that blames none and whose group alone broke in three such views in a row.
  [[nodiscard]] std::optional<MemberId> group_broke(MemberId first,
                                                    const std::vector<BreakReport>& reports);
  /// A view ended for another reason: counting begins anew.
  void view_ended_otherwise() { rows_.clear(); }

 private:
  [[nodiscard]] std::optional<MemberId> broke_alone(MemberId first,
                                                    const std::vector<BreakReport>& reports);

  /// Two members that could not exchange data, the smaller id first; twice the same member if its
  /// group broke alone.
  using Link = std::pair<MemberId, MemberId>;
  /// Consecutive views that broke at one link; views that broke elsewhere in between do not count.
  struct Row {
    int views = 0;
    int unanswered = 0;      ///< of these, views in which packets stayed unanswered
    MemberId accused{};      ///< in the last of them
    bool is_mutual = false;  ///< either end has accused the other one
    int elsewhere = 0;       ///< views since then, which broke elsewhere
  };
  [[nodiscard]] Row grown(const Link& link, MemberId accused, bool unanswered) const;
  [[nodiscard]] static bool is_bad(const Row& row);
  void remember(const std::map<Link, Row>& broken);

  std::map<Link, Row> rows_;
};

/// group_broke() with the reports of the members of a view that has ended: the member to evict, and
/// the reason.
[[nodiscard]] std::optional<Accusation> judge_break(BlameRecord& record, MemberId first,
                                                    const Membership& membership);

}  // namespace mayfly::elastic
