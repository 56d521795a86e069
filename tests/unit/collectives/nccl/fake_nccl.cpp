#include "tests/unit/collectives/nccl/fake_nccl.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.hpp"
#include "tests/unit/collectives/nccl/fake_world.hpp"

namespace mayfly::collectives::test {
namespace {

using namespace fake;  // NOLINT: this file is the interface to it

thread_local const void* bound_device = nullptr;

class Fake final : public FakeNccl {
 public:
  Fake() {
    const std::lock_guard lock(world().mutex);
    world().streams.insert(&stream_);
  }
  ~Fake() override {
    const std::lock_guard lock(world().mutex);
    world().streams.erase(&stream_);
  }

  std::string device_name() const override { return "GPU 0 (fake)"; }
  std::string explain(NcclComm /*comm*/) override { return "as scripted"; }
  NcclStatus bind_thread() override {
    bound_device = this;
    return NcclStatus::kSuccess;
  }

  NcclStatus make_unique_id(NcclUniqueId& id) override {
    const std::lock_guard lock(world().mutex);
    const std::uint64_t number = world().next_id++;
    std::memcpy(id.data(), &number, sizeof number);
    return NcclStatus::kSuccess;
  }

  NcclStatus init(NcclComm& comm, const NcclUniqueId& id, std::uint32_t size,
                  std::uint32_t rank) override {
    ENSURE(bound_device == this, "a thread is bound to the device before it forms");
    if (script.init_answer) {
      return *script.init_answer;
    }
    World& w = world();
    const std::lock_guard lock(w.mutex);
    std::shared_ptr<Clique> clique = w.cliques[id].lock();
    if (!clique) {
      clique = std::make_shared<Clique>(size);
      w.cliques[id] = clique;
    }
    ENSURE(clique->joined.size() == size && !clique->joined[rank], "each rank joins once");
    clique->joined[rank] = true;
    auto* const made = new Comm();
    made->clique = std::move(clique);
    made->rank = rank;
    made->polls_left = script.init_polls;
    w.comms.insert(made);
    ++w.counts.inits;
    ++w.counts.live_comms;
    comm = made;
    return NcclStatus::kInProgress;
  }

  NcclStatus state(NcclComm comm) override {
    const std::lock_guard lock(world().mutex);
    progress(world());
    Comm& c = known(comm);
    const Clique& clique = *c.clique;
    const bool all_there =
        std::find(clique.joined.begin(), clique.joined.end(), false) == clique.joined.end();
    const bool waits_for_peers = c.phase == Comm::Phase::kInit || clique.running[c.rank] != nullptr;
    const bool somebody_died =
        std::find(clique.dead.begin(), clique.dead.end(), true) != clique.dead.end();
    if (script.sees_deaths && waits_for_peers && somebody_died) {
      return NcclStatus::kRemoteError;
    }
    if (c.phase == Comm::Phase::kReady || c.phase == Comm::Phase::kFinalized) {
      return NcclStatus::kSuccess;
    }
    if ((c.phase == Comm::Phase::kInit && !all_there) || c.polls_left-- > 0) {
      return NcclStatus::kInProgress;
    }
    settle(c);
    return NcclStatus::kSuccess;
  }

  NcclStatus enqueue(NcclComm comm, const DeviceTask& task) override {
    const std::lock_guard lock(world().mutex);
    Comm& c = known(comm);
    ENSURE(c.phase == Comm::Phase::kReady, "nothing is enqueued while a call is in progress");
    if (script.enqueue_answer) {
      return *script.enqueue_answer;
    }
    ++world().counts.operations;
    c.phase = Comm::Phase::kEnqueue;
    c.enqueued = task;
    c.polls_left = script.enqueue_polls;
    if (script.enqueue_polls == 0) {
      settle(c);
      return NcclStatus::kSuccess;
    }
    return NcclStatus::kInProgress;
  }

  NcclStatus conclude(const DeviceTask& /*task*/, DeviceEvent done) override {
    return record(done);
  }

  NcclStatus finalize(NcclComm comm) override {
    const std::lock_guard lock(world().mutex);
    Comm& c = known(comm);
    ENSURE(c.phase == Comm::Phase::kReady, "only what is at rest is finalized");
    c.phase = Comm::Phase::kFinalize;
    c.polls_left = script.finalize_polls;
    return NcclStatus::kInProgress;
  }

  NcclStatus destroy(NcclComm comm) override {
    const std::lock_guard lock(world().mutex);
    ENSURE(known(comm).phase == Comm::Phase::kFinalized, "only what is finalized is destroyed");
    ++world().counts.destroys;
    remove(comm);
    return NcclStatus::kSuccess;
  }

  NcclStatus abort(NcclComm comm) override {
    World& w = world();
    std::unique_lock lock(w.mutex);
    if (comm == nullptr) {
      return NcclStatus::kSuccess;
    }
    aborting_ = true;
    w.changed.wait(lock, [&] {
      progress_quietly(w);
      return may_abort_;
    });
    aborting_ = false;
    ++w.counts.aborts;
    remove(comm);
    progress(w);
    return NcclStatus::kSuccess;
  }

  NcclStatus create_event(DeviceEvent& event) override {
    const std::lock_guard lock(world().mutex);
    ++world().counts.live_events;
    event = new Event();
    return NcclStatus::kSuccess;
  }
  void destroy_event(DeviceEvent event) override {
    const std::lock_guard lock(world().mutex);
    --world().counts.live_events;
    delete static_cast<Event*>(event);
  }
  NcclStatus record(DeviceEvent event) override {
    return push(stream_, Item::Kind::kRecord, event);
  }
  NcclStatus record_on(DeviceStream stream, DeviceEvent event) override {
    return push(*static_cast<Stream*>(stream), Item::Kind::kRecord, event);
  }
  NcclStatus hold_for(DeviceEvent event) override {
    return push(stream_, Item::Kind::kHold, event);
  }
  NcclStatus query(DeviceEvent event) override {
    if (script.event_answer) {
      return *script.event_answer;
    }
    const std::lock_guard lock(world().mutex);
    progress(world());
    const auto& asked = *static_cast<const Event*>(event);
    return asked.happened >= asked.recorded ? NcclStatus::kSuccess : NcclStatus::kInProgress;
  }

  void* scratch_word() override { return &scratch_; }

  void let_abort_finish(bool may) override {
    const std::lock_guard lock(world().mutex);
    may_abort_ = may;
    world().changed.notify_all();
  }
  bool aborting() const override {
    const std::lock_guard lock(world().mutex);
    return aborting_;
  }

 private:
  static Comm& known(NcclComm comm) {
    auto* const c = static_cast<Comm*>(comm);
    ENSURE(world().comms.contains(c), "a communicator is not used after its end");
    return *c;
  }

  NcclStatus push(Stream& stream, Item::Kind kind, DeviceEvent event) {
    const std::lock_guard lock(world().mutex);
    auto* const e = static_cast<Event*>(event);
    const std::uint64_t generation = kind == Item::Kind::kRecord ? ++e->recorded : e->recorded;
    stream.push_back({.kind = kind, .operation = nullptr, .event = e, .generation = generation});
    progress(world());
    return NcclStatus::kSuccess;
  }

  // Completes the call that was in progress.
  void settle(Comm& c) {
    if (c.phase == Comm::Phase::kEnqueue) {
      auto launched = std::make_shared<Launched>();
      launched->comm = &c;
      launched->task = *c.enqueued;
      stream_.push_back({.kind = Item::Kind::kOperation, .operation = std::move(launched)});
    }
    c.phase = c.phase == Comm::Phase::kFinalize ? Comm::Phase::kFinalized : Comm::Phase::kReady;
    progress(world());
  }

  // Removes a communicator. Its operations leave the stream and write nothing more.
  void remove(NcclComm comm) {
    auto* const c = static_cast<Comm*>(comm);
    for (const Item& item : stream_) {
      if (item.operation && item.operation->comm == c) {
        item.operation->comm = nullptr;
      }
    }
    c->clique->running[c->rank] = nullptr;
    c->clique->dead[c->rank] = true;
    world().comms.erase(c);
    --world().counts.live_comms;
    delete c;
  }

  Stream stream_;
  std::int32_t scratch_ = 0;
  bool may_abort_ = true;  // guarded by the world's mutex, as is aborting_
  bool aborting_ = false;
};

}  // namespace

FakeCounts fake_counts() {
  const std::lock_guard lock(world().mutex);
  return world().counts;
}

void reset_fake_counts() {
  const std::lock_guard lock(world().mutex);
  const FakeCounts now = world().counts;
  world().counts = {.live_comms = now.live_comms, .live_events = now.live_events};
}

std::unique_ptr<FakeNccl> make_fake_nccl() {
  return std::make_unique<Fake>();
}

struct FakeStream::State {
  Stream stream;
};

FakeStream::FakeStream() : state_(std::make_unique<State>()) {
  const std::lock_guard lock(world().mutex);
  world().streams.insert(&state_->stream);
}

FakeStream::~FakeStream() {
  const std::lock_guard lock(world().mutex);
  world().streams.erase(&state_->stream);
}

DeviceStream FakeStream::handle() {
  return &state_->stream;
}

void FakeStream::add_work() {
  const std::lock_guard lock(world().mutex);
  state_->stream.push_back({.kind = Item::Kind::kWork});
}

void FakeStream::finish_work() {
  const std::lock_guard lock(world().mutex);
  const auto first = std::find_if(state_->stream.begin(), state_->stream.end(),
                                  [](const Item& i) { return i.kind == Item::Kind::kWork; });
  ENSURE(first != state_->stream.end(), "there is work to finish");
  first->kind = Item::Kind::kHold;
  static Event always;
  first->event = &always;
  progress(world());
}

}  // namespace mayfly::collectives::test
