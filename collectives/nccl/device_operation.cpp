#include "collectives/nccl/device_operation.hpp"

#include <chrono>

namespace mayfly::collectives {
namespace {

std::chrono::steady_clock::time_point time_point_of(Instant deadline) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline.ns));
}

}  // namespace

void DeviceOperation::set_on_stream() {
  const std::lock_guard lock(mutex_);
  on_stream_ = true;
  changed_.notify_all();
}

void DeviceOperation::finish(Result<void> outcome) {
  const Instant now = monotonic_now();
  const std::lock_guard lock(mutex_);
  finished_at_ = now;
  result_ = std::move(outcome);
  changed_.notify_all();
}

Result<void> DeviceOperation::wait_finished(Instant deadline) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, time_point_of(deadline), [&] { return result_.has_value(); })) {
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

Result<void> DeviceOperation::wait_on_stream(Instant deadline) {
  std::unique_lock lock(mutex_);
  const auto settled = [&] { return on_stream_ || result_.has_value(); };
  if (!changed_.wait_until(lock, time_point_of(deadline), settled)) {
    return Error{Errc::kDeadline, "the operation has not reached the device yet"};
  }
  return result_.value_or(Result<void>());
}

}  // namespace mayfly::collectives
