#pragma once

// Where the control thread and the trainer meet. The control thread puts in what the coordinator
// decided (MemberHandler); the trainer takes it out, and registers what must be interrupted when a
// view is over.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <variant>

#include "collectives/abort_signal.hpp"
#include "collectives/group.hpp"
#include "elastic/core/member.hpp"
#include "elastic/net/member_client.hpp"
#include "engine/training/compute_pool.hpp"

namespace mayfly::engine {

class WorkerLink final : public elastic::MemberHandler {
 public:
  /// What the trainer is to do next.
  using Order = std::variant<elastic::View, elastic::member_effect::Leave>;

  /// All of them outlive it.
  WorkerLink(collectives::Transport& transport, ComputePool& pool, elastic::MemberClient& client)
      : transport_(transport), pool_(pool), client_(client) {}

  // Control thread:
  void run_view(const elastic::View& view) override;
  void abort_group(ViewId view) override;
  void ask_for_boundary(const elastic::member_effect::AskForBoundary& ask) override;
  void leave(const elastic::member_effect::Leave& leave) override;
  void coordinator_returned(std::uint64_t reports_dropped) override;

  // Trainer:
  /// Blocks until there is an order.
  [[nodiscard]] Order next_order();
  /// Waits for one, that long at most; true if there is one.
  [[nodiscard]] bool wait_for_order(Duration most);
  /// From now on abort_group(group's view) aborts this group and raises `over`. If the view is
  /// already over, at once.
  void attach(collectives::Group& group, collectives::AbortSignal& over);
  /// The group is about to be destroyed.
  void detach();
  /// Somebody asked for a boundary in this view.
  [[nodiscard]] bool boundary_asked(ViewId view) const;
  /// And this member is in the next view.
  [[nodiscard]] bool stays_after(ViewId view) const;
  /// The view is over (aborted from outside).
  [[nodiscard]] bool is_over(ViewId view) const;

 private:
  collectives::Transport& transport_;
  ComputePool& pool_;
  elastic::MemberClient& client_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  // Guarded by mutex_:
  std::deque<Order> orders_;
  collectives::Group* group_ = nullptr;
  collectives::AbortSignal* over_signal_ = nullptr;  // with the group
  ViewId over_{};                                    // this view and older ones are over
  elastic::member_effect::AskForBoundary boundary_;  // the view that is to stop at one
};

}  // namespace mayfly::engine
