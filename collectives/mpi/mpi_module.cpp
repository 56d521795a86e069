// libmayfly_mpi.so: groups over Open MPI, in processes that mpirun started (docs/mpi.md).

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/try_assign.hpp"
#include "collectives/mpi/mpi_engine.hpp"
#include "collectives/mpi/mpi_world.hpp"
#include "collectives/queued_group.hpp"
#include "collectives/transport_module.hpp"

namespace mayfly::collectives {
namespace {

// Messages of so many earlier views may not have been received yet.
constexpr std::uint64_t kViewsBack = 8;
// After a view was given up, MPI may take so long to complete its communicator.
constexpr Duration kFormingStuck = seconds(5);

struct Greeting {
  std::uint64_t view = 0;
  std::uint64_t key = 0;
};

/// The greetings of one formation.
class Greetings {
 public:
  Greetings(MpiWorld& world, const GroupSpec& spec, const MpiPlace& place)
      : world_(world),
        place_(place),
        greeting_{value(spec.view), spec.key},
        tag_(world.tag_of(spec.view, kHelloTag)),
        from_(place.size),
        to_(place.size) {}
  ~Greetings() {
    for (auto* messages : {&from_, &to_}) {
      for (AbandonedMessage& message : *messages) {
        world_.abandon(std::move(message));
      }
    }
  }
  Greetings(const Greetings&) = delete;
  Greetings& operator=(const Greetings&) = delete;

  Result<void> start() {
    for (std::uint32_t other = 0; other < place_.size; ++other) {
      if (other == value(place_.rank)) {
        continue;
      }
      ++missing_;
      TRY(receive_from(other));
      TRY(send_to(other));
    }
    return {};
  }

  /// Receives the greetings that have arrived. True if there were any.
  Result<bool> poll() {
    bool moved = false;
    for (std::uint32_t other = 0; other < place_.size; ++other) {
      AbandonedMessage& message = from_[other];
      if (message.request == MPI_REQUEST_NULL) {
        continue;
      }
      int done = 0;
      const int code = ::MPI_Test(&message.request, &done, MPI_STATUS_IGNORE);
      TRY(check_mpi(code, "a greeting", member(other)));
      if (done == 0) {
        continue;
      }
      moved = true;
      if (std::memcmp(message.memory.data(), &greeting_, sizeof greeting_) == 0) {
        --missing_;
      } else {  // a greeting of a much older view
        TRY(receive_from(other));
      }
    }
    return moved;
  }

  [[nodiscard]] bool complete() const { return missing_ == 0; }
  [[nodiscard]] MemberId first_missing() const {
    std::uint32_t other = 0;
    while (from_[other].request == MPI_REQUEST_NULL) {
      ++other;
    }
    return member(other);
  }

 private:
  [[nodiscard]] MemberId member(std::uint32_t other) const { return place_.peers[other].member; }

  Result<void> receive_from(std::uint32_t other) {
    from_[other].memory = AlignedBuffer<std::byte>(sizeof(Greeting));
    return check_mpi(
        ::MPI_Irecv(from_[other].memory.data(), sizeof(Greeting), MPI_BYTE,
                    place_.world_ranks[other], tag_, world_.comm(), &from_[other].request),
        "receiving", member(other));
  }
  Result<void> send_to(std::uint32_t other) {
    to_[other].memory = AlignedBuffer<std::byte>(sizeof(Greeting));
    std::memcpy(to_[other].memory.data(), &greeting_, sizeof greeting_);
    return check_mpi(
        ::MPI_Isend(to_[other].memory.data(), sizeof(Greeting), MPI_BYTE, place_.world_ranks[other],
                    tag_, world_.comm(), &to_[other].request),
        "sending", member(other));
  }

  MpiWorld& world_;
  const MpiPlace& place_;
  const Greeting greeting_;
  const int tag_;
  std::vector<AbandonedMessage> from_;  // by rank
  std::vector<AbandonedMessage> to_;
  std::uint32_t missing_ = 0;
};

/// Receives one message of an older view, so that its sender has finished with it, too.
bool discard_one(MpiWorld& world, int source, int tag) {
  int found = 0;
  MPI_Message handle = MPI_MESSAGE_NULL;
  MPI_Status status{};
  if (::MPI_Improbe(source, tag, world.comm(), &found, &handle, &status) != MPI_SUCCESS ||
      found == 0) {
    return false;
  }
  int bytes = 0;
  ::MPI_Get_count(&status, MPI_BYTE, &bytes);
  AbandonedMessage message;
  message.memory = AlignedBuffer<std::byte>(static_cast<std::size_t>(bytes));
  ::MPI_Imrecv(message.memory.data(), bytes, MPI_BYTE, &handle, &message.request);
  world.abandon(std::move(message));
  return true;
}

// A member that has greeted this one has already sent all its messages of older views, and MPI
// delivers a rank's messages in order.
void discard_old_messages(MpiWorld& world, const MpiPlace& place, ViewId view) {
  const std::uint64_t newest = value(view);
  for (std::uint64_t back = 1; back <= kViewsBack && back < newest; ++back) {
    for (std::uint32_t other = 0; other < place.size; ++other) {
      for (const int kind : {kHelloTag, kDataTag}) {
        while (other != value(place.rank) &&
               discard_one(world, place.world_ranks[other],
                           world.tag_of(ViewId{newest - back}, kind))) {
        }
      }
    }
  }
  world.sweep();
}

/// Every member greets every other one. Returns once all have greeted this member, so that no
/// member enters a blocking call before all have arrived. Ends with kAborted as soon as `stop` is
/// set, or with kDeadline, naming a missing member. Messages of older views that no member received
/// are discarded.
Result<void> meet_members(MpiWorld& world, const GroupSpec& spec, const MpiPlace& place,
                          Instant deadline, const std::atomic<bool>& stop) {
  world.begin_connecting();
  Greetings greetings(world, spec, place);
  TRY(greetings.start());
  PollBackoff backoff;
  while (!greetings.complete()) {
    if (stop.load(std::memory_order_acquire)) {
      return given_up(spec.view);
    }
    TRY_ASSIGN(const bool moved, greetings.poll());
    if (moved) {
      backoff.moved();
      world.keep_connections();
    } else if (monotonic_now() >= deadline) {
      const MemberId missing = greetings.first_missing();
      return Error{Errc::kDeadline,
                   fmt::format("member {} did not join view {}", value(missing), value(spec.view)),
                   missing};
    } else {
      backoff.pause();
    }
  }
  world.keep_connections();
  discard_old_messages(world, place, spec.view);
  return {};
}

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(std::unique_ptr<MpiWorld> world) : world_(std::move(world)) {}

  std::string address() const override { return world_->address(); }

  Result<std::unique_ptr<Group>> form(const GroupSpec& spec, Instant deadline) override {
    TRY(check_spec(spec));
    const auto size = static_cast<std::uint32_t>(spec.peers.size());
    TRY_ASSIGN(std::vector<int> world_ranks, world_->ranks_of(spec.peers));
    const MpiPlace place{spec.rank, size, spec.peers, std::move(world_ranks)};
    const bool is_collective = size > 1 && !world_->elastic();
    std::optional<Watchdog> watch;
    if (is_collective) {
      watch.emplace(kFormingStuck,
                    "a member did not join an MPI group that was abandoned, and MPI cannot be "
                    "stopped, so this process ends; under mpirun --enable-recovery it can be");
    }
    std::atomic<bool> stop{false};
    const FormingGuard::Entry entry = guard_.enter(spec.view, [&stop, &watch] {
      stop = true;
      if (watch) {
        watch->start_clock();
      }
    });
    TRY(meet_members(*world_, spec, place, deadline, stop));
    if (stop.load()) {
      return given_up(spec.view);
    }
    std::unique_ptr<GroupEngine> engine;
    if (is_collective) {
      // A member that has greeted this one and given up the view since then would let it wait for
      // ever.
      if (!watch->enter()) {
        return given_up(spec.view);
      }
      TRY_ASSIGN(engine, make_collective_engine(*world_, place, spec.view));
      watch->leave();
    } else if (size > 1) {
      engine = make_ring_engine(*world_, place, spec.view);
    }
    world_->note_view();
    return make_queued_group(spec.view, spec.rank, size, std::move(engine));
  }

  void give_up_on(ViewId view) noexcept override { guard_.give_up_on(view); }

 private:
  const std::unique_ptr<MpiWorld> world_;
  FormingGuard guard_;
};

Result<std::unique_ptr<Transport>> make(const ModuleOptions& options) {
  TRY_ASSIGN(std::unique_ptr<MpiWorld> world, MpiWorld::start(options.share_cores));
  return std::unique_ptr<Transport>(std::make_unique<MpiTransport>(std::move(world)));
}

}  // namespace
}  // namespace mayfly::collectives

extern "C" __attribute__((visibility("default"))) const mayfly::collectives::TransportModule*
mayfly_transport_module() {
  using namespace mayfly::collectives;  // NOLINT
  static const TransportModule module{transport_module_build(), &MpiWorld::probe, &make};
  return &module;
}
