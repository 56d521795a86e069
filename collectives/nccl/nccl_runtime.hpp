#pragma once

// What outlives a communicator: the library, the device, and events that are used again. Shared by
// the transport, its groups and every operation, whichever is gone last. Any thread.

#include <memory>
#include <mutex>
#include <vector>

#include "collectives/nccl/nccl_api.hpp"

namespace mayfly::collectives {

class NcclRuntime {
 public:
  explicit NcclRuntime(std::unique_ptr<NcclApi> api) : api_(std::move(api)) {}
  ~NcclRuntime();
  NcclRuntime(const NcclRuntime&) = delete;
  NcclRuntime& operator=(const NcclRuntime&) = delete;

  [[nodiscard]] NcclApi& api() { return *api_; }

  /// An event that nobody else uses, or null if the device refuses one.
  [[nodiscard]] DeviceEvent take_event();
  /// Null is fine. Whoever waits for an earlier record of it on the device goes on doing so.
  void give_back(DeviceEvent event);

 private:
  std::unique_ptr<NcclApi> api_;
  std::mutex mutex_;
  std::vector<DeviceEvent> free_events_;  // guarded by mutex_
};

/// An event on loan from a runtime that outlives it.
class LentEvent {
 public:
  LentEvent() = default;
  explicit LentEvent(NcclRuntime& runtime) : runtime_(&runtime), event_(runtime.take_event()) {}
  ~LentEvent() { reset(); }
  LentEvent(LentEvent&& other) noexcept;
  LentEvent& operator=(LentEvent&& other) noexcept;

  [[nodiscard]] DeviceEvent get() const { return event_; }
  [[nodiscard]] explicit operator bool() const { return event_ != nullptr; }
  void reset();

 private:
  NcclRuntime* runtime_ = nullptr;
  DeviceEvent event_ = nullptr;
};

}  // namespace mayfly::collectives
