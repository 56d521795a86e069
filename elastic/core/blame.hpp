#pragma once

// Decides which member to evict when groups keep breaking although every member is connected: a
// broken link or a sick host that still answers the coordinator. A member that is blamed may only
// have left because another one broke first, so blame is followed to its root before it counts.

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "elastic/core/membership.hpp"

namespace mayfly::elastic {

/// What one member reported when the view's group broke.
struct BreakReport {
  MemberId member{};
  bool failed = false;              ///< its group broke; otherwise it was told to stop
  bool finished = false;            ///< it had nothing left to do
  std::optional<MemberId> culprit;  ///< whom it blames; itself: its own way to others is cut
  bool unanswered = false;          ///< because its host left packets unanswered
};

class BlameRecord {
 public:
  /// The group of a view broke by itself; `first` reported it before anybody was told to stop.
  /// `reports` are those of all members of the view that still are connected. Returns whom to
  /// evict: `first`, if it blames itself; somebody blamed by two members, or by the same in three
  /// such views; two are enough if packets stayed unanswered, as that tells more than a connection
  /// that broke: it may have broken because another one did. Others in between may have broken
  /// elsewhere, as of several bad links only the one that is noticed first shows. Of two that blame
  /// only each other, at once or in turns, the one with the larger id goes. Whose group alone broke
  /// in three such views in a row, and who blames nobody, goes, too.
  [[nodiscard]] std::optional<MemberId> group_broke(MemberId first,
                                                    const std::vector<BreakReport>& reports);
  /// A view ended in another way: rows are broken.
  void view_ended_otherwise() { rows_.clear(); }

 private:
  [[nodiscard]] std::optional<MemberId> broke_alone(MemberId first,
                                                    const std::vector<BreakReport>& reports);

  /// Between which two members data did not pass, the smaller id first; itself, if it broke alone.
  using Link = std::pair<MemberId, MemberId>;
  /// Views that broke there, without one that ended in another way between them.
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

/// The same with the reports of the members of a view that has ended: which one has to go, and why.
[[nodiscard]] std::optional<Accusation> judge_break(BlameRecord& record, MemberId first,
                                                    const Membership& membership);

}  // namespace mayfly::elastic
