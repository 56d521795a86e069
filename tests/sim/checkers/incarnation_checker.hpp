#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/ids.hpp"
#include "elastic/core/view.hpp"
#include "tests/sim/checkers/violations.hpp"

namespace mayfly::sim {

/// Checks the invariants of failover, for any sequence of coordinators:
/// - All published views with one id are equal, and every view that a process runs or remembers was
///   published exactly so.
/// - A member id belongs to one process.
/// - A process never obeys a lower incarnation than one that it has accepted.
/// - There is no split brain: once a view has committed a step, no older view commits one.
class IncarnationChecker {
 public:
  explicit IncarnationChecker(Violations& violations) : violations_(violations) {}

  void on_published(const elastic::View& view) {
    const bool is_new = published_.emplace(view.id, view).second;
    violations_.expect(is_new, [&] { return name(view.id) + " was published twice"; });
  }
  void on_known(const elastic::View& view, const std::string& who) {
    const auto place = published_.find(view.id);
    violations_.expect(place != published_.end() && place->second == view, [&] {
      return who + " knows another " + name(view.id) + " than the published one";
    });
  }
  void on_member_id(MemberId id, std::size_t process) {
    const auto [place, is_new] = process_of_.emplace(id, process);
    violations_.expect(is_new || place->second == process, [&] {
      return "member id " + std::to_string(value(id)) + " was given to two processes";
    });
  }
  void on_obeyed(MemberId id, Incarnation incarnation) {
    Incarnation& highest = accepted_[id];
    violations_.expect(incarnation >= highest, [&] {
      return "member " + std::to_string(value(id)) + " obeys incarnation " +
             std::to_string(value(incarnation)) + " after " + std::to_string(value(highest));
    });
    highest = std::max(highest, incarnation);
  }
  /// Every member of the view has contributed, so the step is committed in it.
  void on_reduced(ViewId view, std::uint64_t step) {
    if (newest_ && view < *newest_) {
      violations_.add(name(view) + " commits step " + std::to_string(step) + " although " +
                      name(*newest_) + " has committed one: two sides");
    }
    newest_ = newest_ ? std::max(*newest_, view) : view;
  }

 private:
  [[nodiscard]] static std::string name(ViewId view) {
    return "view " + std::to_string(value(view));
  }

  Violations& violations_;
  std::map<ViewId, elastic::View> published_;
  std::map<MemberId, std::size_t> process_of_;
  std::map<MemberId, Incarnation> accepted_;
  std::optional<ViewId> newest_;  // the newest view that has committed a step
};

}  // namespace mayfly::sim
