#include "collectives/nccl/nccl_api.hpp"

#include <utility>

namespace mayfly::collectives {

const char* to_string(NcclStatus status) {
  switch (status) {
    case NcclStatus::kSuccess: return "success";
    case NcclStatus::kInProgress: return "in progress";
    case NcclStatus::kRemoteError: return "remote error";
    case NcclStatus::kSystemError: return "system error";
    case NcclStatus::kDeviceError: return "CUDA error";
    case NcclStatus::kInternalError: return "internal error";
    case NcclStatus::kBadCall: return "wrong use";
  }
  return "?";
}

NcclRuntime::~NcclRuntime() {
  for (const DeviceEvent event : free_events_) {
    api_->destroy_event(event);
  }
}

DeviceEvent NcclRuntime::take_event() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_events_.empty()) {
      const DeviceEvent event = free_events_.back();
      free_events_.pop_back();
      return event;
    }
  }
  DeviceEvent event = nullptr;
  return api_->create_event(event) == NcclStatus::kSuccess ? event : nullptr;
}

void NcclRuntime::give_back(DeviceEvent event) {
  if (event != nullptr) {
    const std::lock_guard lock(mutex_);
    free_events_.push_back(event);
  }
}

LentEvent::LentEvent(LentEvent&& other) noexcept
    : runtime_(other.runtime_), event_(std::exchange(other.event_, nullptr)) {}

LentEvent& LentEvent::operator=(LentEvent&& other) noexcept {
  if (this != &other) {
    reset();
    runtime_ = other.runtime_;
    event_ = std::exchange(other.event_, nullptr);
  }
  return *this;
}

void LentEvent::reset() {
  if (event_ != nullptr) {
    runtime_->give_back(std::exchange(event_, nullptr));
  }
}

}  // namespace mayfly::collectives
