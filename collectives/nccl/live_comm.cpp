#include "collectives/nccl/live_comm.hpp"

#include <fmt/format.h>

#include <chrono>
#include <thread>
#include <utility>

#include "base/check.hpp"

namespace mayfly::collectives {

using Step = CommLifecycle::Step;

LiveComm::LiveComm(std::shared_ptr<NcclRuntime> runtime, CommPlace place)
    : runtime_(std::move(runtime)),
      place_(std::move(place)),
      signal_(std::make_shared<CommSignal>()) {}

LiveComm::~LiveComm() {
  if (lifecycle_) {
    lifecycle_->abort();
    while (!over()) {
      if (const auto pause = turn()) {
        signal_->sleep(*pause);
      }
    }
  }
}

Result<void> LiveComm::connect(Instant deadline) {
  lifecycle_ = std::make_unique<CommLifecycle>(deadline);
  return turn_until(&CommLifecycle::connected);
}

Result<void> LiveComm::meet(Instant deadline) {
  operations_.push_back(barrier_operation());
  lifecycle_->meet(deadline);
  Result<void> all_here = turn_until(&CommLifecycle::met);
  operations_.pop_front();
  first_ticket_ = 1;
  return all_here;
}

Result<void> LiveComm::turn_until(bool (CommLifecycle::*reached)() const) {
  while (!((*lifecycle_).*reached)()) {
    const std::optional<Duration> pause = turn();
    if (over()) {
      return error_of(*lifecycle_->failure());
    }
    signal_->sleep(pause.value_or(Duration::zero()));
  }
  return {};
}

std::shared_ptr<DeviceOperation> LiveComm::barrier_operation() {
  void* const word = runtime_->api().scratch_word();
  const DeviceTask task{.from = word,
                        .to = word,
                        .count = 1,
                        .rank = place_.rank,
                        .size = static_cast<std::uint32_t>(place_.members.size())};
  return std::make_shared<DeviceOperation>(runtime_, task, std::vector<LentEvent>());
}

void LiveComm::submit(std::shared_ptr<DeviceOperation> operation) {
  operations_.push_back(std::move(operation));
  lifecycle_->submit(first_ticket_ + operations_.size() - 1);
  hand_out_results();
}

void LiveComm::close(Instant deadline) {
  if (lifecycle_->busy()) {
    lifecycle_->abort();
  } else {
    lifecycle_->close(deadline);
  }
}

std::optional<Duration> LiveComm::turn() {
  if (signal_->aborted()) {
    lifecycle_->abort();
  }
  const CommLifecycle::Call call = lifecycle_->next(monotonic_now());
  hand_out_results();
  if (call.step == Step::kIdle || call.step == Step::kOver) {
    return std::nullopt;
  }
  if (call.pause > Duration::zero() && !std::exchange(rested_, true)) {
    return call.pause;
  }
  rested_ = false;
  const bool had_failed = lifecycle_->failure().has_value();
  const NcclStatus status = make(call);
  lifecycle_->report(status);
  if (!had_failed && lifecycle_->failure()) {
    explanation_ = runtime_->api().explain(comm_);
  }
  hand_out_results();
  return Duration::zero();
}

NcclStatus LiveComm::make(const CommLifecycle::Call& call) {
  NcclApi& api = runtime_->api();
  switch (call.step) {
    case Step::kInit:
      return api.init(comm_, place_.id, static_cast<std::uint32_t>(place_.members.size()),
                      place_.rank);
    case Step::kPollComm: return api.state(comm_);
    case Step::kEnqueue: return enqueue(operation(call.ticket));
    case Step::kConclude: return conclude(operation(call.ticket));
    case Step::kPollEvent: return api.query(operation(call.ticket).done.get());
    case Step::kFinalize: return api.finalize(comm_);
    case Step::kDestroy: return api.destroy(std::exchange(comm_, nullptr));
    case Step::kAbort: return api.abort(std::exchange(comm_, nullptr));
    case Step::kFence: return fence();
    case Step::kPollFence: return api.query(fence_.get());
    case Step::kIdle:
    case Step::kOver: break;
  }
  UNREACHABLE("these are no calls");
}

NcclStatus LiveComm::enqueue(const DeviceOperation& operation) {
  for (const LentEvent& gate : operation.gates) {
    const NcclStatus held = runtime_->api().hold_for(gate.get());
    if (held != NcclStatus::kSuccess) {
      return held;
    }
  }
  return runtime_->api().enqueue(comm_, operation.task);
}

NcclStatus LiveComm::conclude(DeviceOperation& operation) {
  if (!operation.done) {
    return NcclStatus::kDeviceError;
  }
  return runtime_->api().conclude(operation.task, operation.done.get());
}

NcclStatus LiveComm::fence() {
  fence_ = LentEvent(*runtime_);
  return fence_ ? runtime_->api().record(fence_.get()) : NcclStatus::kDeviceError;
}

DeviceOperation& LiveComm::operation(CommLifecycle::Ticket ticket) {
  return *operations_.at(static_cast<std::size_t>(ticket - first_ticket_));
}

// Operations end in the order of their tickets.
void LiveComm::hand_out_results() {
  for (const CommLifecycle::Finished& finished : lifecycle_->take_finished()) {
    ENSURE(finished.ticket == first_ticket_, "operations end in order");
    operations_.front()->finish(finished.failure ? Result<void>(error_of(*finished.failure))
                                                 : Result<void>());
    operations_.pop_front();
    ++first_ticket_;
  }
}

Error LiveComm::error_of(const CommLifecycle::Failure& failure) const {
  if (failure.code == Errc::kAborted) {
    return {Errc::kAborted, "the group was aborted"};
  }
  if (failure.code == Errc::kDeadline) {
    return {Errc::kDeadline, "not every member has joined the communicator in time"};
  }
  Error error{failure.code, fmt::format("NCCL on {}: {}{}{}", runtime_->api().device_name(),
                                        to_string(failure.status), explanation_.empty() ? "" : ": ",
                                        explanation_)};
  // NCCL does not report which member it was.
  if (failure.code == Errc::kPeerLost && place_.members.size() == 2) {
    error.culprit = place_.members[1 - place_.rank];
  }
  return error;
}

void CommSignal::sleep(Duration at_most) {
  if (at_most <= Duration::zero()) {
    std::this_thread::yield();
    return;
  }
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, at_most, [&] { return notified_; });
  notified_ = false;
}

void CommSignal::sleep() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return notified_; });
  notified_ = false;
}

void DeviceOperation::finish(Result<void> outcome) {
  const Instant now = monotonic_now();
  const std::lock_guard lock(mutex_);
  finished_at_ = now;
  result_ = std::move(outcome);
  changed_.notify_all();
}

Result<void> DeviceOperation::wait_finished(Instant deadline) {
  const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline.ns)};
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, until, [&] { return result_.has_value(); })) {
    return Error{Errc::kDeadline, "the operation is still running"};
  }
  return *result_;
}

void DeviceOperation::wait_finished() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return result_.has_value(); });
}

Instant DeviceOperation::finished_at() {
  const std::lock_guard lock(mutex_);
  return finished_at_;
}

}  // namespace mayfly::collectives
