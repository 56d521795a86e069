#include "collectives/nccl/comm_formation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collectives/queued_group.hpp"

namespace mayfly::collectives {
namespace {

// How long a wait for a key may go on before we look whether the formation was stopped.
constexpr milliseconds kStoreSlice{20};

// The view's keys in the store.
class MeetingPlace {
 public:
  explicit MeetingPlace(const GroupSpec& spec)
      : spec_(spec), prefix_(fmt::format("nccl/{}/{:x}/", value(spec.view), spec.key)) {}

  // Says that we are here, so that the others can tell who is not.
  Result<void> arrive() const { return spec_.store->set(here(value(spec_.rank)), {}); }

  Result<void> publish(const NcclUniqueId& id) const {
    return spec_.store->set(prefix_ + "id", id);
  }

  Result<NcclUniqueId> learn(Instant deadline, const FormationStop& stop) const {
    while (!stop.aborted()) {
      const Instant slice = std::min(deadline, monotonic_now() + kStoreSlice);
      const Result<Bytes> got = spec_.store->get(prefix_ + "id", slice);
      NcclUniqueId id{};
      if (got.ok() && got.value().size() == id.size()) {
        std::ranges::copy(got.value(), id.begin());
        return id;
      }
      if (got.ok()) {
        return Error{Errc::kCorrupt, fmt::format("the name of an NCCL communicator has {} bytes",
                                                 got.value().size())};
      }
      if (got.error().code != Errc::kDeadline) {
        return got.error();
      }
      if (monotonic_now() >= deadline) {
        return Error{Errc::kDeadline, "rank 0 has not named a communicator",
                     spec_.peers.front().member};
      }
    }
    return Error{Errc::kAborted, fmt::format("view {} was given up", value(spec_.view))};
  }

  // A member that has not arrived.
  std::optional<MemberId> missing() const {
    for (std::uint32_t rank = 0; rank < spec_.peers.size(); ++rank) {
      const Result<Bytes> there = spec_.store->get(here(rank), monotonic_now());
      if (!there.ok()) {
        return spec_.peers[rank].member;
      }
    }
    return std::nullopt;
  }

 private:
  std::string here(std::uint32_t rank) const { return fmt::format("{}here/{}", prefix_, rank); }

  const GroupSpec& spec_;
  const std::string prefix_;
};

Error device_error(NcclRuntime& runtime, const char* what, NcclStatus status) {
  return {Errc::kIo, fmt::format("{} on {}: {}: {}", what, runtime.api().device_name(),
                                 to_string(status), runtime.api().explain(nullptr))};
}

Result<NcclUniqueId> agree_on_id(NcclRuntime& runtime, const GroupSpec& spec, Instant deadline,
                                 const FormationStop& stop) {
  const bool alone = spec.peers.size() == 1;
  if (!alone && spec.store == nullptr) {
    return Error{Errc::kInvalidInput, "an nccl group cannot form without a rendezvous store"};
  }
  const MeetingPlace place(spec);
  if (!alone) {
    TRY(place.arrive());
  }
  if (value(spec.rank) != 0) {
    return place.learn(deadline, stop);
  }
  NcclUniqueId id{};
  if (const NcclStatus made = runtime.api().make_unique_id(id); made != NcclStatus::kSuccess) {
    return device_error(runtime, "cannot name a communicator", made);
  }
  if (!alone) {
    TRY(place.publish(id));
  }
  return id;
}

}  // namespace

void FormationStop::abort() noexcept {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  if (comm_) {
    comm_->abort();
  }
}

bool FormationStop::aborted() const {
  const std::lock_guard lock(mutex_);
  return aborted_;
}

void FormationStop::attach(std::shared_ptr<CommSignal> comm) {
  const std::lock_guard lock(mutex_);
  comm_ = std::move(comm);
  if (aborted_ && comm_) {
    comm_->abort();
  }
}

namespace {

// Runs one half of the formation; whoever stops it reaches the communicator meanwhile.
template <typename Half>
Result<void> run_half(LiveComm& comm, const GroupSpec& spec, FormationStop& stop,
                      const Half& half) {
  stop.attach(comm.signal());
  Result<void> outcome = half();
  stop.attach(nullptr);
  if (outcome.ok() || outcome.error().code != Errc::kDeadline || spec.store == nullptr) {
    return outcome;
  }
  Error late = std::move(outcome).error();
  late.culprit = MeetingPlace(spec).missing();
  return late;
}

}  // namespace

Result<std::unique_ptr<LiveComm>> connect_comm(const std::shared_ptr<NcclRuntime>& runtime,
                                               const GroupSpec& spec, Instant deadline,
                                               FormationStop& stop) {
  TRY(check_spec(spec));
  const Result<NcclUniqueId> id = agree_on_id(*runtime, spec, deadline, stop);
  if (!id.ok()) {
    return id.error();
  }
  CommPlace place{.id = id.value(), .members = {}, .rank = value(spec.rank)};
  for (const Peer& peer : spec.peers) {
    place.members.push_back(peer.member);
  }
  auto comm = std::make_unique<LiveComm>(runtime, std::move(place));
  Result<void> connected = run_half(*comm, spec, stop, [&] { return comm->connect(deadline); });
  if (!connected.ok()) {
    return std::move(connected).error();
  }
  return comm;
}

Result<void> meet_members(LiveComm& comm, const GroupSpec& spec, Instant deadline,
                          FormationStop& stop) {
  return run_half(comm, spec, stop, [&] { return comm.meet(deadline); });
}

}  // namespace mayfly::collectives
