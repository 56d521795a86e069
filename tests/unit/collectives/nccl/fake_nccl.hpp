#pragma once

// An imitation of NCCL and CUDA inside one process, without a device: "device memory" is ordinary
// memory, and streams are queues that advance with every call. Like NCCL it puts an operation on
// its stream some time after the call, writes to buffers while an operation runs, and, if so
// configured, does not report peers that die. It enforces the rules: a call while another is in
// progress, or the use of a communicator after its end, ends the test.

#include <cstdint>
#include <memory>
#include <optional>

#include "collectives/nccl/nccl_api.hpp"

namespace mayfly::collectives::test {

/// How a fake device behaves. May be changed between calls by the thread that makes them.
struct FakeScript {
  int init_polls = 2;     ///< polls that init takes after all ranks have called it
  int enqueue_polls = 1;  ///< polls until an enqueued operation is on the stream
  int finalize_polls = 2;
  bool sees_deaths = true;  ///< a dead peer causes kRemoteError; otherwise it is not reported
  std::optional<NcclStatus> init_answer, enqueue_answer, event_answer;
};

/// The calls of all fake devices of the process since the last reset.
struct FakeCounts {
  int inits = 0, aborts = 0, destroys = 0, operations = 0;
  int live_comms = 0, live_events = 0;
};
[[nodiscard]] FakeCounts fake_counts();
/// Resets the counts to zero; existing objects are still counted.
void reset_fake_counts();

/// One device with its communication stream.
class FakeNccl : public NcclApi {
 public:
  FakeScript script;

  /// While false, abort() of this device does not return.
  virtual void let_abort_finish(bool may) = 0;
  /// Whether abort() has been called and has not returned.
  [[nodiscard]] virtual bool aborting() const = 0;
};
[[nodiscard]] std::unique_ptr<FakeNccl> make_fake_nccl();

/// A compute stream of the caller's, as FakeNccl takes it.
class FakeStream {
 public:
  FakeStream();
  ~FakeStream();
  FakeStream(const FakeStream&) = delete;
  FakeStream& operator=(const FakeStream&) = delete;

  [[nodiscard]] DeviceStream handle();
  /// Adds an operation to the stream that ends only when finish_work() is called; in order.
  void add_work();
  void finish_work();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mayfly::collectives::test
