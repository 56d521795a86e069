#include "tests/unit/collectives/nccl/fake_world.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.hpp"
#include "collectives/plan/reduce_kernels.hpp"

namespace mayfly::collectives::test::fake {
namespace {

std::size_t bytes_of(const DeviceTask& task) {
  const bool reduces = task.kind == DeviceTask::Kind::kAllReduce;
  return task.count * (reduces ? size_of(task.type) : 1);
}
std::size_t output_bytes(const DeviceTask& task) {
  return bytes_of(task) * (task.kind == DeviceTask::Kind::kAllGather ? task.size : 1);
}

// A kernel that runs may have written anything to its output.
void scribble(const Launched& launched) {
  if (launched.task.count > 0) {
    std::memset(launched.task.to, 0x5a, output_bytes(launched.task));
  }
}

void begin(Launched& launched) {
  const DeviceTask& task = launched.task;
  launched.began = true;
  launched.input.resize(bytes_of(task));
  if (task.count > 0) {
    std::memcpy(launched.input.data(), task.from, launched.input.size());
  }
  launched.comm->clique->running[launched.comm->rank] = &launched;
}

std::vector<std::byte> reduction_of(const Clique& clique) {
  const DeviceTask& task = clique.running.front()->task;
  std::vector<std::byte> sum = clique.running.front()->input;
  reduce_alone(sum.data(), task.count, task.type, task.op);  // as the kernels around NCCL do
  for (std::size_t rank = 1; rank < clique.running.size(); ++rank) {
    ENSURE(clique.running[rank]->input.size() == sum.size(), "all ranks run the same operation");
    reduce(sum.data(), clique.running[rank]->input.data(), task.count, task.type, task.op);
  }
  return sum;
}

void execute(Clique& clique) {
  const DeviceTask::Kind kind = clique.running.front()->task.kind;
  const std::vector<std::byte> sum =
      kind == DeviceTask::Kind::kAllReduce ? reduction_of(clique) : std::vector<std::byte>();
  for (Launched* const launched : clique.running) {
    const DeviceTask& task = launched->task;
    auto* const to = static_cast<std::byte*>(task.to);
    ENSURE(task.kind == kind, "all ranks run the same operation");
    if (kind == DeviceTask::Kind::kAllReduce) {
      std::copy(sum.begin(), sum.end(), to);
    } else if (kind == DeviceTask::Kind::kBroadcast) {
      const std::vector<std::byte>& input = clique.running[task.root]->input;
      std::copy(input.begin(), input.end(), to);
    } else {
      for (std::size_t rank = 0; rank < clique.running.size(); ++rank) {
        const std::vector<std::byte>& input = clique.running[rank]->input;
        std::copy(input.begin(), input.end(), to + static_cast<std::ptrdiff_t>(rank * task.count));
      }
    }
  }
}

// Advances the head of a stream. Returns whether it is over.
bool advance(Item& item) {
  switch (item.kind) {
    case Item::Kind::kRecord: item.event->happened = item.generation; return true;
    case Item::Kind::kHold: return item.event->happened >= item.generation;
    case Item::Kind::kWork: return false;
    case Item::Kind::kOperation: break;
  }
  Launched& launched = *item.operation;
  if (launched.comm == nullptr) {
    return true;  // executed, or its communicator was aborted
  }
  if (!launched.began) {
    begin(launched);
  }
  scribble(launched);
  Clique& clique = *launched.comm->clique;
  const auto runs = [](const Launched* running) { return running != nullptr; };
  if (!std::all_of(clique.running.begin(), clique.running.end(), runs)) {
    return false;
  }
  execute(clique);
  for (Launched*& running : clique.running) {
    std::exchange(running, nullptr)->comm = nullptr;
  }
  return true;
}

}  // namespace

World& world() {
  static World the_world;
  return the_world;
}

void progress_quietly(World& w) {
  bool moved = true;
  while (moved) {
    moved = false;
    for (Stream* const stream : w.streams) {
      while (!stream->empty() && advance(stream->front())) {
        stream->pop_front();
        moved = true;
      }
    }
  }
}

void progress(World& w) {
  progress_quietly(w);
  w.changed.notify_all();
}

}  // namespace mayfly::collectives::test::fake
