#include "engine/training/worker_link.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <utility>

#include "engine/run/records.hpp"

namespace mayfly::engine {

void WorkerLink::run_view(const elastic::View& view) {
  const std::lock_guard lock(mutex_);
  orders_.emplace_back(view);
  order_arrived_.notify();
}

void WorkerLink::abort_group(ViewId view) {
  transport_.give_up_on(view);
  {
    const std::lock_guard lock(mutex_);
    over_ = view;
    if (group_ != nullptr && group_->view() <= view) {
      group_->abort();
      over_signal_->raise();
    }
  }
  computer_.interrupt();
}

void WorkerLink::ask_for_boundary(const elastic::member_effect::AskForBoundary& ask) {
  const std::lock_guard lock(mutex_);
  boundary_ = ask;
}

void WorkerLink::leave(const elastic::member_effect::Leave& leave) {
  const std::lock_guard lock(mutex_);
  orders_.emplace_back(leave);
  order_arrived_.notify();  // under the lock: the receiver of this order may destroy this object
}

void WorkerLink::coordinator_returned(std::uint64_t reports_dropped) {
  if (reports_dropped > 0) {
    client_.send_report(encode_record(NoteRecord{
        "reports_dropped", fmt::format("member {} had no room for {} reports while there was no "
                                       "coordinator",
                                       value(client_.id()), reports_dropped)}));
  }
}

WorkerLink::Order WorkerLink::next_order() {
  while (true) {
    order_arrived_.clear();
    {
      const std::lock_guard lock(mutex_);
      if (!orders_.empty()) {
        Order order = std::move(orders_.front());
        orders_.pop_front();
        return order;
      }
    }
    pollfd polled{order_arrived_.fd(), POLLIN, 0};
    (void)::poll(&polled, 1, -1);
  }
}

bool WorkerLink::has_order() const {
  const std::lock_guard lock(mutex_);
  return !orders_.empty();
}

void WorkerLink::attach(collectives::Group& group, AbortSignal& over) {
  const std::lock_guard lock(mutex_);
  group_ = &group;
  over_signal_ = &over;
  if (group.view() <= over_) {
    group.abort();
    over.raise();
  }
}

void WorkerLink::detach() {
  const std::lock_guard lock(mutex_);
  group_ = nullptr;
  over_signal_ = nullptr;
}

bool WorkerLink::boundary_requested(ViewId view) const {
  const std::lock_guard lock(mutex_);
  return boundary_.view == view;
}

bool WorkerLink::stays_after(ViewId view) const {
  const std::lock_guard lock(mutex_);
  return boundary_.view == view && boundary_.stays && view > over_;
}

bool WorkerLink::is_over(ViewId view) const {
  const std::lock_guard lock(mutex_);
  return view <= over_;
}

}  // namespace mayfly::engine
