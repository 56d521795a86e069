#pragma once

// The calls of NCCL and of the CUDA runtime that a group needs, as an interface: the adapter in
// nccl_api_cuda.cpp makes them, a fake in the tests plays them without a device. No call waits for
// the device or for a peer, except abort() and destroy().

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/group.hpp"
#include "collectives/plan/reduce_kernels.hpp"

namespace mayfly::collectives {

/// NCCL's results (and CUDA's, if Mayfly distinguishes them).
enum class NcclStatus {
  kSuccess,
  kInProgress,   ///< a non-blocking call continues, or an event has not happened yet
  kRemoteError,  ///< a peer, or a connection to it, is lost
  kSystemError,  ///< a system call failed on this host, for example without enough shared memory
  kDeviceError,  ///< CUDA failed; after most errors this process cannot use the device
  kInternalError,
  kBadCall  ///< wrong arguments or wrong use
};

/// "remote error", for texts.
[[nodiscard]] const char* to_string(NcclStatus status);

/// Identifies one communicator to be formed; made by its rank 0.
using NcclUniqueId = std::array<std::byte, 128>;

/// One operation, in device memory.
struct DeviceTask {
  enum class Kind { kAllReduce, kBroadcast, kAllGather };
  Kind kind = Kind::kAllReduce;
  const void* from = nullptr;
  void* to = nullptr;     ///< in-place operations: the same as `from`
  std::size_t count = 0;  ///< elements; bytes of kBroadcast, bytes of each member in kAllGather
  DataType type = DataType::kInt32;  ///< of reductions
  ReduceOp op = ReduceOp::kSum;      ///< of reductions
  std::uint32_t root = 0;            ///< of kBroadcast
  std::uint32_t rank = 0;            ///< this member's
  std::uint32_t size = 1;            ///< of the group
};

/// A communicator, whose type only the implementation knows. Null: none.
using NcclComm = void*;

/// One device, one stream for communication. Calls with a communicator: one thread at a time for
/// each communicator; all others: any thread.
class NcclApi {
 public:
  virtual ~NcclApi() = default;

  /// A readable name: "gpu 0 (NVIDIA H200)".
  [[nodiscard]] virtual std::string device_name() const = 0;
  /// Makes this device the current one of the calling thread. Each thread calls it before any other
  /// function.
  virtual NcclStatus bind_thread() = 0;
  /// The last error in the library's own words; may be empty.
  [[nodiscard]] virtual std::string explain(NcclComm comm) = 0;

  virtual NcclStatus make_unique_id(NcclUniqueId& id) = 0;
  /// Begins to form a non-blocking communicator; `comm` may be null after a failure. kInProgress:
  /// poll state() until it returns another status.
  virtual NcclStatus init(NcclComm& comm, const NcclUniqueId& id, std::uint32_t size,
                          std::uint32_t rank) = 0;
  /// The status of the last call with this communicator, and of everything that runs in it.
  virtual NcclStatus state(NcclComm comm) = 0;
  /// Submits an operation to the communication stream. It is there once state() returns kSuccess.
  virtual NcclStatus enqueue(NcclComm comm, const DeviceTask& task) = 0;
  /// Called once `task` is on the stream: submits the work that completes its result, and records
  /// `done` behind it.
  virtual NcclStatus conclude(const DeviceTask& task, DeviceEvent done) = 0;
  /// Begins to flush a communicator that is not used any more; kInProgress as above.
  virtual NcclStatus finalize(NcclComm comm) = 0;
  /// Frees a finalized communicator.
  virtual NcclStatus destroy(NcclComm comm) = 0;
  /// Stops all work of the communicator, on the host and on the device, and frees it. Returns when
  /// its kernels have ended. Does nothing for null.
  virtual NcclStatus abort(NcclComm comm) = 0;

  virtual NcclStatus create_event(DeviceEvent& event) = 0;
  virtual void destroy_event(DeviceEvent event) = 0;
  /// `event` happens when everything that was submitted to the communication stream so far is
  /// complete.
  virtual NcclStatus record(DeviceEvent event) = 0;
  /// The same for a stream of the caller.
  virtual NcclStatus record_on(DeviceStream stream, DeviceEvent event) = 0;
  /// kSuccess: it has happened; kInProgress: not yet.
  virtual NcclStatus query(DeviceEvent event) = 0;
  /// Work that is submitted to the communication stream from now on waits for `event`, which was
  /// recorded before.
  virtual NcclStatus hold_for(DeviceEvent event) = 0;

  /// One int32 of device memory for barriers; its value does not matter.
  [[nodiscard]] virtual void* scratch_word() = 0;
};

/// Opens `device` with the real NCCL and CUDA runtime: its context, a communication stream of high
/// priority, Mayfly's kernels. kIo if CUDA fails. The caller has checked the machine (NcclFacts).
[[nodiscard]] Result<std::unique_ptr<NcclApi>> make_cuda_nccl_api(int device);

/// Everything that outlives a communicator: the library, the device, and events for reuse. Shared
/// by the transport, its groups and every operation; the last owner destroys it. Any thread.
class NcclRuntime {
 public:
  explicit NcclRuntime(std::unique_ptr<NcclApi> api) : api_(std::move(api)) {}
  ~NcclRuntime();
  NcclRuntime(const NcclRuntime&) = delete;
  NcclRuntime& operator=(const NcclRuntime&) = delete;

  [[nodiscard]] NcclApi& api() { return *api_; }

  /// An unused event, or null if the device cannot make one.
  [[nodiscard]] DeviceEvent take_event();
  /// Returns `event`, which may be null. Work on the device that waits for an earlier record of it
  /// still does.
  void give_back(DeviceEvent event);

 private:
  std::unique_ptr<NcclApi> api_;
  std::mutex mutex_;
  std::vector<DeviceEvent> free_events_;  // guarded by mutex_
};

/// An event that was taken from a runtime, which outlives it.
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
