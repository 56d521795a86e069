#pragma once

// What a Group whose data lies in device memory offers beyond the port: operations that wait for
// the compute stream, and a compute stream that waits for operations, both on the device. CUDA's
// types stay in the .cpp files: a stream is passed as the pointer that cudaStream_t is.

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
  /// The next operation that is started reads its buffers only when everything that `stream` was
  /// given before this call has happened. Several calls before one operation add up. Without it an
  /// operation starts at once, so whoever filled its buffers must have waited for that. The thread
  /// that starts operations; does not wait. `stream` must not be capturing a graph, here and below.
  virtual Result<void> follow(DeviceStream stream) = 0;

  /// Whatever `stream` is given after this call happens only when `work`, an operation of this
  /// group, is complete. Waits on the host, not for the operation but until it is on its way to
  /// the device. A failure that comes later ends the stream's wait as well: results count only
  /// once work.wait() has said ok. kDeadline: nothing was done; kAborted, kPeerLost: as wait().
  virtual Result<void> let_follow(DeviceStream stream, Work& work, Instant deadline) = 0;
};

/// A transport of DeviceGroups.
class DeviceTransport : public Transport {
 public:
  /// Begins to form the communicator of a view that is planned, on a thread of its own, while the
  /// present group goes on. form() of the same spec then takes what was begun; form() of another
  /// view, another prepare() and give_up_on() throw it away. `spec.store` must live until the next
  /// form() or prepare() has returned, or the transport is gone. The thread that calls form();
  /// does not wait for peers.
  virtual void prepare(const GroupSpec& spec, Instant deadline) = 0;
};

}  // namespace mayfly::collectives
