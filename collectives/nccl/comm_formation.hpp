#pragma once

// Forms the communicator of one view: the members meet in the view's store, then in NCCL.

#include <memory>
#include <mutex>

#include "collectives/nccl/live_comm.hpp"

namespace mayfly::collectives {

/// Stops a formation, whichever part of it runs. Any thread.
class FormationStop {
 public:
  void abort() noexcept;
  [[nodiscard]] bool aborted() const;

  /// The forming thread: abort() also reaches this communicator from now on; null ends that.
  void attach(std::shared_ptr<CommSignal> comm);

 private:
  mutable std::mutex mutex_;
  bool aborted_ = false;              // guarded by mutex_
  std::shared_ptr<CommSignal> comm_;  // guarded by mutex_
};

/// The first half: blocks until the communicator of the view is there, without running anything on
/// the device. The calling thread must be bound to the device. Ends with kAborted soon after `stop`
/// is aborted. kDeadline names a member that did not come, if it is known; kInvalidInput: no store
/// for a group of several, or a rank outside of it.
[[nodiscard]] Result<std::unique_ptr<LiveComm>> connect_comm(
    const std::shared_ptr<NcclRuntime>& runtime, const GroupSpec& spec, Instant deadline,
    FormationStop& stop);

/// The second half: blocks until all members have connected and met in a barrier. Fails alike.
[[nodiscard]] Result<void> meet_members(LiveComm& comm, const GroupSpec& spec, Instant deadline,
                                        FormationStop& stop);

}  // namespace mayfly::collectives
