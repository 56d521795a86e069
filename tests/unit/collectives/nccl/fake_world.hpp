#pragma once

// The internals of FakeNccl: streams, events and communicators of all fake devices of the process.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "tests/unit/collectives/nccl/fake_nccl.hpp"

namespace mayfly::collectives::test::fake {

struct Launched;

struct Event {
  std::uint64_t recorded = 0;
  std::uint64_t happened = 0;
};

// One communicator, as all its ranks see it.
struct Clique {
  explicit Clique(std::uint32_t size) : joined(size), dead(size), running(size) {}
  std::vector<bool> joined;
  std::vector<bool> dead;
  std::vector<Launched*> running;  // by rank: the operation at the head of its stream
};

// One rank's communicator.
struct Comm {
  std::shared_ptr<Clique> clique;  // shared by its ranks
  std::uint32_t rank = 0;
  int polls_left = 0;
  enum class Phase { kInit, kReady, kEnqueue, kFinalize, kFinalized } phase = Phase::kInit;
  std::optional<DeviceTask> enqueued;  // not on the stream yet
};

// An operation on a stream.
struct Launched {
  Comm* comm = nullptr;
  DeviceTask task;
  std::vector<std::byte> input;  // copied when the operation began to run
  bool began = false;
};

// An entry of a stream.
struct Item {
  enum class Kind { kOperation, kRecord, kHold, kWork } kind = Kind::kWork;
  std::shared_ptr<Launched> operation{};  // owned by the stream; its clique points to it
  Event* event = nullptr;
  std::uint64_t generation = 0;
};
using Stream = std::deque<Item>;

// The state of all fake devices, under one lock.
struct World {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<NcclUniqueId, std::weak_ptr<Clique>> cliques;
  std::set<Stream*> streams;
  std::set<Comm*> comms;
  std::uint64_t next_id = 1;
  FakeCounts counts;
};
[[nodiscard]] World& world();

/// Advances all streams as far as possible, without waking waiting threads. Under the lock.
void progress_quietly(World& w);
/// Advances all streams and wakes waiting threads.
void progress(World& w);

}  // namespace mayfly::collectives::test::fake
