#include "collectives/mpi/mpi_formation.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "collectives/mpi/poll_backoff.hpp"

namespace mayfly::collectives {
namespace {

// How many views back messages may still lie around.
constexpr std::uint64_t kViewsBack = 8;

struct Hello {
  std::uint64_t view = 0;
  std::uint64_t key = 0;

  friend bool operator==(const Hello&, const Hello&) = default;
};

/// The greetings of one formation.
class Greetings {
 public:
  Greetings(MpiWorld& world, const GroupSpec& spec, const MpiPlace& place)
      : world_(world),
        place_(place),
        hello_{value(spec.view), spec.key},
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
      Result<void> posted = receive_from(other);
      TRY(posted.ok() ? send_to(other) : posted);
    }
    return {};
  }

  /// Takes what has come in. True if something has.
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
      if (std::memcmp(message.memory.data(), &hello_, sizeof hello_) == 0) {
        --missing_;
      } else if (Result<void> again = receive_from(other); !again.ok()) {  // of a view long ago
        return again.error();
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
    from_[other].memory = AlignedBuffer<std::byte>(sizeof(Hello));
    return check_mpi(
        ::MPI_Irecv(from_[other].memory.data(), sizeof(Hello), MPI_BYTE, place_.world_ranks[other],
                    tag_, world_.comm(), &from_[other].request),
        "receiving", member(other));
  }
  Result<void> send_to(std::uint32_t other) {
    to_[other].memory = AlignedBuffer<std::byte>(sizeof(Hello));
    std::memcpy(to_[other].memory.data(), &hello_, sizeof hello_);
    return check_mpi(
        ::MPI_Isend(to_[other].memory.data(), sizeof(Hello), MPI_BYTE, place_.world_ranks[other],
                    tag_, world_.comm(), &to_[other].request),
        "sending", member(other));
  }

  MpiWorld& world_;
  const MpiPlace& place_;
  const Hello hello_;
  const int tag_;
  std::vector<AbandonedMessage> from_;  // by rank
  std::vector<AbandonedMessage> to_;
  std::uint32_t missing_ = 0;
};

/// Takes over one message of an older view, so that its sender can let go of it too.
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

// A member that has greeted us has sent all that it ever sends in older views, and MPI delivers a
// rank's messages in order.
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

}  // namespace

Result<void> meet_members(MpiWorld& world, const GroupSpec& spec, const MpiPlace& place,
                          Instant deadline, const std::atomic<bool>& stop) {
  world.begin_connecting();
  Greetings greetings(world, spec, place);
  TRY(greetings.start());
  PollBackoff wait;
  while (!greetings.complete()) {
    if (stop.load(std::memory_order_acquire)) {
      return Error{Errc::kAborted, fmt::format("view {} was given up", value(spec.view))};
    }
    const Result<bool> moved = greetings.poll();
    if (!moved.ok()) {
      return moved.error();
    }
    if (moved.value()) {
      wait.moved();
      world.keep_connections();
    } else if (monotonic_now() >= deadline) {
      const MemberId missing = greetings.first_missing();
      return Error{
          Errc::kDeadline,
          fmt::format("member {} did not come to view {}", value(missing), value(spec.view)),
          missing};
    } else {
      wait.pause();
    }
  }
  world.keep_connections();
  discard_old_messages(world, place, spec.view);
  return {};
}

}  // namespace mayfly::collectives
