#pragma once

// One change of view: from the event that ends a view, over the publication of the next one, until
// the members of that have all started. It keeps the instants and the deadline; whom to tell what
// is an answer. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "elastic/core/claims.hpp"
#include "elastic/core/coordinator_events.hpp"
#include "elastic/core/coordinator_options.hpp"
#include "elastic/core/view.hpp"

namespace mayfly::elastic {

class ViewChange {
 public:
  /// What the active members of the view that ends have to be told now.
  enum class Tell {
    kNothing,     ///< they know, or find out by themselves
    kAtBoundary,  ///< to stop at the next one
    kAtOnce       ///< to abort their group
  };

  explicit ViewChange(const CoordinatorOptions& options)
      : stop_timeout_(options.stop_timeout), dispute_timeout_(options.dispute_timeout) {}

  // Until the next view is published.

  /// A view has to end; `immediate`: not at a boundary. `cause` and `members` as in Recovery. What
  /// was under way is replaced, but a recovery whose view has not started is part of the next one.
  [[nodiscard]] Tell begin(Instant now, ViewId old_view, bool immediate, ChangeCause cause,
                           std::vector<MemberId> members);
  /// Something else happens while the view ends.
  [[nodiscard]] Tell add(Instant now, bool immediate, ChangeCause cause,
                         std::vector<MemberId> members);
  /// Nobody has reported a failure, but some members do not come to the boundary in time: all have
  /// to be told to abort their group. The cause stays.
  void insist(Instant now);
  /// This member was the first to report a broken group, before anybody was told to stop.
  void broke_first(MemberId member, const std::string& detail);
  /// A member found that states or results differ, and has stopped. The others find it in the same
  /// reduction and must come to its end, for what they have is needed to tell who is right: told to
  /// stop at once they would be cut off, and in the next view perhaps again.
  void await_disputes(Instant now, Dispute dispute);
  /// Some member has stopped: the others have the usual time, unless they have a deadline already.
  void await_others(Instant now);
  /// A readable text of what happened, which replaces the earlier one.
  void explain(const std::string& detail);
  /// The same, unless something was said before.
  void explain_if_open(const std::string& detail);
  /// Members are expelled because their states or results were wrong.
  void found_corruption();
  /// While we stood still ourselves nobody could be heard: a member that is evicted now would take
  /// its sums and its commit with it. What was told since gets no more than its usual time.
  void excuse(Duration pause, Instant now);
  /// The view that was to follow does not come for now.
  void forget() { change_.reset(); }
  /// Nor is anything known any more of the views before: another coordinator may have led.
  void forget_all();

  /// A view has ended or is about to, and the next one is not published yet.
  [[nodiscard]] bool is_under_way() const { return change_.has_value(); }
  /// Members were told to abort their group.
  [[nodiscard]] bool is_immediate() const { return stop_is_immediate_; }
  /// Some member should have stopped by now.
  [[nodiscard]] bool is_overdue(Instant now) const {
    return stop_deadline_ && *stop_deadline_ <= now;
  }
  /// Nothing if the group did not break by itself.
  [[nodiscard]] std::optional<MemberId> first_to_break() const;

  // From then on.

  /// `next` is published; `newcomers`: members of it that have not been in a view before.
  void publish(Instant now, const View& next, const std::vector<MemberId>& newcomers,
               std::uint32_t redone_microbatches);
  /// Members of the published view report for the first time: group, state, a commit.
  void formed(Instant now);
  void synced(Instant now);
  void committed(Instant now);
  /// A view is published and not all of its members are known to have started.
  [[nodiscard]] bool is_settling() const { return settling_.has_value(); }
  /// The whole change, once, when its view is settled.
  [[nodiscard]] std::optional<Recovery> take_settled(bool everybody_has_started);

 private:
  [[nodiscard]] Tell stop_now(Instant now, ChangeCause cause);

  Duration stop_timeout_;
  Duration dispute_timeout_;

  std::optional<Recovery> change_;
  bool stop_is_immediate_ = false;
  std::optional<Instant> stop_deadline_;
  std::optional<MemberId> first_to_break_;

  std::optional<Recovery> settling_;  // led to the present view, until its members have started
  bool has_first_commit_ = false;     // of that view
};

}  // namespace mayfly::elastic
