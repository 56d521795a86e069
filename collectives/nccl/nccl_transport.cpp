#include "collectives/nccl/nccl_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "base/try_assign.hpp"
#include "collectives/forming_guard.hpp"
#include "collectives/nccl/live_comm.hpp"
#include "collectives/nccl/nccl_group.hpp"
#include "collectives/queued_group.hpp"

namespace mayfly::collectives {
namespace {

// Loading NCCL's kernels was seen to take most of a minute on machines with many GPUs.
constexpr Duration kWarmUpMax = seconds(180);

/// Stops a formation, whichever part of it runs. Any thread.
class FormationStop {
 public:
  void abort() noexcept;
  [[nodiscard]] bool aborted() const;

  /// The forming thread: abort() also reaches this communicator from now on; null ends that.
  void attach(std::shared_ptr<CommSignal> comm);

 private:
  mutable std::mutex mutex_;
  bool aborted_ = false;              // guarded by mutex_
  std::shared_ptr<CommSignal> comm_;  // guarded by mutex_
};

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

// How long a wait for a key lasts before the thread looks whether the formation was stopped.
constexpr milliseconds kStoreSlice{20};

// The keys of a view in its store.
class MeetingPlace {
 public:
  explicit MeetingPlace(const GroupSpec& spec)
      : spec_(spec), prefix_(fmt::format("nccl/{}/{:x}/", value(spec.view), spec.key)) {}

  // Announces this member, so that the others can tell which one is missing.
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
    return given_up(spec_.view);
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

/// Blocks until the communicator of the view is connected and all members have met in a first
/// barrier. The calling thread must be bound to the device. kAborted soon after `stop` is aborted.
/// kDeadline names a member that did not come, if it is known; kInvalidInput: no store for a group
/// of several members, or a rank outside the group.
Result<std::unique_ptr<LiveComm>> form_comm(const std::shared_ptr<NcclRuntime>& runtime,
                                            const GroupSpec& spec, Instant deadline,
                                            FormationStop& stop) {
  TRY(check_spec(spec));
  CommPlace place{.id = {}, .members = {}, .rank = value(spec.rank)};
  TRY_ASSIGN(place.id, agree_on_id(*runtime, spec, deadline, stop));
  for (const Peer& peer : spec.peers) {
    place.members.push_back(peer.member);
  }
  auto comm = std::make_unique<LiveComm>(runtime, std::move(place));
  stop.attach(comm->signal());
  Result<void> formed = comm->connect(deadline);
  if (formed.ok()) {
    formed = comm->meet(deadline);
  }
  stop.attach(nullptr);
  if (formed.ok()) {
    return comm;
  }
  Error error = std::move(formed).error();
  if (error.code == Errc::kDeadline && spec.store != nullptr) {
    error.culprit = MeetingPlace(spec).missing();
  }
  return error;
}

class NcclTransport final : public Transport {
 public:
  NcclTransport(std::shared_ptr<NcclRuntime> runtime, std::string address)
      : runtime_(std::move(runtime)), address_(std::move(address)) {}

  // Peers meet in the store; the address is for people.
  std::string address() const override { return address_; }

  Result<std::unique_ptr<Group>> form(const GroupSpec& spec, Instant deadline) override {
    const NcclStatus bound = runtime_->api().bind_thread();
    if (bound != NcclStatus::kSuccess) {
      return Error{Errc::kIo, fmt::format("cannot use {}: {}", runtime_->api().device_name(),
                                          runtime_->api().explain(nullptr))};
    }
    FormationStop stop;
    const FormingGuard::Entry entry = forming_guard_.enter(spec.view, [&stop] { stop.abort(); });
    if (stop.aborted()) {
      return given_up(spec.view);
    }
    Result<std::unique_ptr<LiveComm>> comm = form_comm(runtime_, spec, deadline, stop);
    if (!comm.ok()) {
      return comm.error().code == Errc::kAborted ? given_up(spec.view) : std::move(comm).error();
    }
    return std::unique_ptr<Group>(make_nccl_group(spec.view, spec.rank,
                                                  static_cast<std::uint32_t>(spec.peers.size()),
                                                  runtime_, std::move(comm).value()));
  }

  void give_up_on(ViewId view) noexcept override { forming_guard_.give_up_on(view); }

 private:
  const std::shared_ptr<NcclRuntime> runtime_;
  const std::string address_;
  FormingGuard forming_guard_;
};

// Loads the kernels.
Result<void> warm_up(const std::shared_ptr<NcclRuntime>& runtime) {
  GroupSpec alone;
  alone.peers.push_back({});
  const Instant deadline = monotonic_now() + kWarmUpMax;
  FormationStop never;
  TRY(form_comm(runtime, alone, deadline, never));
  return {};
}

}  // namespace

Result<std::unique_ptr<Transport>> make_nccl_transport(std::unique_ptr<NcclApi> api,
                                                       const std::string& address) {
  auto runtime = std::make_shared<NcclRuntime>(std::move(api));
  (void)runtime->api().bind_thread();
  TRY(warm_up(runtime));
  return std::unique_ptr<Transport>(std::make_unique<NcclTransport>(std::move(runtime), address));
}

}  // namespace mayfly::collectives
