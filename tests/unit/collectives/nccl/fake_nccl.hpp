#pragma once

// NCCL and CUDA played inside one process, without a device: "device memory" is ordinary memory,
// streams are queues that advance whenever anybody asks for anything. Like the real ones it puts an
// operation on its stream some time after the call, writes to buffers while an operation runs, and
// says nothing about peers that die if told so. It insists on the rules: a call while another is in
// progress or a communicator used after its end ends the test.

#include <cstdint>
#include <memory>
#include <optional>

#include "collectives/nccl/nccl_api.hpp"

namespace mayfly::collectives::test {

/// How a fake device behaves. May be changed between calls by the thread that makes them.
struct FakeScript {
  int init_polls = 2;     ///< polls that init takes after all ranks have come
  int enqueue_polls = 1;  ///< polls until an enqueued operation is on the stream
  int finalize_polls = 2;
  bool sees_deaths = true;  ///< a dead peer becomes kRemoteError; else silence
  std::optional<NcclStatus> init_answer, enqueue_answer, event_answer;
};

/// What all fake devices of the process have been asked for, since the last reset.
struct FakeCounts {
  int inits = 0, aborts = 0, destroys = 0, operations = 0;
  int live_comms = 0, live_events = 0;
};
[[nodiscard]] FakeCounts fake_counts();
/// Counts from zero; what lives goes on being counted.
void reset_fake_counts();

/// One device with its communication stream.
class FakeNccl : public NcclApi {
 public:
  FakeScript script;

  /// While false, abort() of this device does not come back.
  virtual void let_abort_finish(bool may) = 0;
  /// Whether abort() has been called and has not come back.
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
  /// Gives the stream something that happens only once finish_work() is called; in order.
  void add_work();
  void finish_work();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mayfly::collectives::test
