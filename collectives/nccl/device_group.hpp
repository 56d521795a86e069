#pragma once

// What a Group whose data lies in device memory offers beyond the port: operations that wait for
// the compute stream on the device. CUDA's types stay in the .cpp files: a stream is passed as the
// pointer that cudaStream_t is.

#include "collectives/group.hpp"

namespace mayfly::collectives {

/// A cudaStream_t of the group's device (null: the legacy default stream).
using DeviceStream = void*;
/// A cudaEvent_t, as an adapter sees fit. Null: none.
using DeviceEvent = void*;

/// A group whose buffers are device memory: `data`, `mine` and `all` of every operation are device
/// pointers. all_gather's `mine` is either apart from `all` or in its own place inside of it.
class DeviceGroup : public Group {
 public:
  /// The next operation that is started reads its buffers only after everything that `stream` was
  /// given before this call has happened. Several calls before one operation add up. Without this
  /// call an operation starts at once, so its buffers must have been filled before. The thread that
  /// starts operations; does not wait. `stream` must not be capturing a graph. kIo if the device
  /// refuses.
  virtual Result<void> follow(DeviceStream stream) = 0;
};

}  // namespace mayfly::collectives
