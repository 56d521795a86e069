#pragma once

// The connection between the control thread and the trainer. The control thread queues the
// coordinator's decisions as orders (MemberHandler); the trainer takes them, and registers the
// group that must be aborted when its view is over.

#include <deque>
#include <mutex>
#include <variant>

#include "base/net/wake_up.hpp"
#include "collectives/group.hpp"
#include "elastic/core/member.hpp"
#include "elastic/net/member_client.hpp"
#include "engine/training/computer.hpp"

namespace mayfly::engine {

class WorkerLink final : public elastic::MemberHandler {
 public:
  /// The next task of the trainer.
  using Order = std::variant<elastic::View, elastic::member_effect::Leave>;

  /// All arguments outlive it.
  WorkerLink(collectives::Transport& transport, Computer& computer, elastic::MemberClient& client)
      : transport_(transport), computer_(computer), client_(client) {}

  // Control thread:
  void run_view(const elastic::View& view) override;
  void abort_group(ViewId view) override;
  void ask_for_boundary(const elastic::member_effect::AskForBoundary& ask) override;
  void leave(const elastic::member_effect::Leave& leave) override;
  void coordinator_returned(std::uint64_t reports_dropped) override;

  // Trainer:
  /// Blocks until there is an order.
  [[nodiscard]] Order next_order();
  /// Whether next_order() would return at once.
  [[nodiscard]] bool has_order() const;
  /// Notified when an order arrives; next_order() clears it.
  [[nodiscard]] const WakeUp& order_arrived() const { return order_arrived_; }
  /// From now on abort_group() with the group's view aborts this group and raises `over`. If the
  /// view is already over, attach() does so itself.
  void attach(collectives::Group& group, AbortSignal& over);
  /// To be called before the group is destroyed.
  void detach();
  /// Whether a boundary was requested in this view.
  [[nodiscard]] bool boundary_requested(ViewId view) const;
  /// Whether it was requested and this member is in the next view.
  [[nodiscard]] bool stays_after(ViewId view) const;
  /// Whether the view is over (aborted from outside).
  [[nodiscard]] bool is_over(ViewId view) const;

 private:
  collectives::Transport& transport_;
  Computer& computer_;
  elastic::MemberClient& client_;
  const WakeUp order_arrived_;
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  std::deque<Order> orders_;
  collectives::Group* group_ = nullptr;
  AbortSignal* over_signal_ = nullptr;               // with the group
  ViewId over_{};                                    // this view and older ones are over
  elastic::member_effect::AskForBoundary boundary_;  // the last request
};

/// The rendezvous store of one view, kept by the coordinator and reached over the control
/// connection.
class RendezvousOverControl final : public collectives::RendezvousStore {
 public:
  RendezvousOverControl(elastic::MemberClient& client, ViewId view)
      : client_(client), view_(view) {}

  Result<void> set(const std::string& key, ByteSpan value) override {
    return client_.store_set(view_, key, value);
  }
  Result<Bytes> get(const std::string& key, Instant deadline) override {
    return client_.store_get(view_, key, deadline);
  }

 private:
  elastic::MemberClient& client_;
  ViewId view_;
};

}  // namespace mayfly::engine
