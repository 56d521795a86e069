#pragma once

// One change of view: from the event that ends a view, through the publication of the next one,
// until all of its members have started. It records the instants and the deadline, and returns
// which order to stop must be sent. Pure; one thread.

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
  /// The order to send to the active members of the view that ends.
  enum class StopOrder {
    kNone,        ///< they have an order, or detect the end by themselves
    kAtBoundary,  ///< to stop at the next step boundary
    kAtOnce       ///< to abort their group
  };

  explicit ViewChange(const CoordinatorOptions& options)
      : stop_timeout_(options.stop_timeout), dispute_timeout_(options.dispute_timeout) {}

  // Until the next view is published.

  /// A view must end; `immediate`: not at a boundary. `cause` and `members` as in Recovery.
  /// Replaces a change that is under way; a recovery whose view has not started becomes part of the
  /// new one.
  [[nodiscard]] StopOrder begin(Instant now, ViewId old_view, bool immediate, ChangeCause cause,
                                std::vector<MemberId> members);
  /// Another cause arises while the view ends.
  [[nodiscard]] StopOrder add(Instant now, bool immediate, ChangeCause cause,
                              std::vector<MemberId> members);
  /// No member has reported a failure, but some do not reach the boundary in time: all must be told
  /// to abort their group. The cause stays, unless a member is lost.
  void insist(Instant now);
  /// This member was the first to report a broken group, before any member was told to stop.
  void broke_first(MemberId member, const std::string& detail);
  /// A member has stopped because states or results differ. The others detect that in the same
  /// reduction and must complete it, because their hashes are needed to decide which member is
  /// wrong. If they were told to stop at once, they could not report them, perhaps repeatedly.
  void await_disputes(Instant now, Dispute dispute);
  /// Some member has stopped: the others get stop_timeout, unless they have a deadline already.
  void await_others(Instant now);
  /// A readable text of what happened, which replaces the earlier one.
  void explain(const std::string& detail);
  /// The same, but an earlier text stays.
  void explain_if_open(const std::string& detail);
  /// Members are evicted because their states or results were wrong.
  void found_corruption();
  /// This process was itself suspended for `pause` and could not receive anything. Moves the
  /// deadline, because an evicted member would take its sums and its commit with it; members that
  /// were told to stop since then get no more than stop_timeout.
  void extend_deadlines(Duration pause, Instant now);
  /// The next view is not made for now.
  void forget() { change_.reset(); }
  /// Forgets earlier views, too, because another coordinator may have led the job meanwhile.
  void forget_all();

  /// A view has ended or is about to, and the next one is not published yet.
  [[nodiscard]] bool is_under_way() const { return change_.has_value(); }
  /// Members were told to abort their group.
  [[nodiscard]] bool is_immediate() const { return stop_is_immediate_; }
  /// The deadline for members to stop has passed.
  [[nodiscard]] bool is_overdue(Instant now) const {
    return stop_deadline_ && *stop_deadline_ <= now;
  }
  /// The first member that reported a broken group; nothing if the group did not break by itself.
  [[nodiscard]] std::optional<MemberId> first_to_break() const;

  // After the next view is published.

  /// `next` is published; `newcomers`: its members that have not been in a view before.
  void publish(Instant now, const View& next, const std::vector<MemberId>& newcomers,
               std::uint32_t redone_microbatches);
  /// Members of the published view report for the first time: group, state, a commit.
  void formed(Instant now);
  void synced(Instant now);
  void committed(Instant now);
  /// A view is published and not all of its members are known to have started.
  [[nodiscard]] bool is_settling() const { return settling_.has_value(); }
  /// The completed change, once, when all members of its view have started and a step is committed.
  [[nodiscard]] std::optional<Recovery> take_settled(bool all_have_started);

  /// Invariants between any two events.
  void check_invariants() const;

 private:
  [[nodiscard]] StopOrder stop_now(Instant now, ChangeCause cause);

  Duration stop_timeout_;
  Duration dispute_timeout_;

  std::optional<Recovery> change_;
  bool stop_is_immediate_ = false;
  std::optional<Instant> stop_deadline_;
  std::optional<MemberId> first_to_break_;

  std::optional<Recovery> settling_;  // of the present view, until its members have started
  bool has_first_commit_ = false;     // the present view
};

}  // namespace mayfly::elastic
