#include "collectives/nccl/nccl_transport.hpp"

#include <fmt/format.h>

#include <pthread.h>
#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.hpp"
#include "base/try_assign.hpp"
#include "collectives/nccl/live_comm.hpp"
#include "collectives/queued_group.hpp"

namespace mayfly::collectives {
namespace {

// Members destroy the group of a view within moments of each other when nothing is wrong.
constexpr Duration kClosingMax = seconds(3);

class NcclWork final : public Work {
 public:
  explicit NcclWork(std::shared_ptr<DeviceOperation> operation)
      : operation_(std::move(operation)) {}
  ~NcclWork() override { operation_->wait_finished(); }

  Result<void> wait(Instant deadline) override { return operation_->wait_finished(deadline); }
  Instant finished_at() const override { return operation_->finished_at(); }

 private:
  std::shared_ptr<DeviceOperation> operation_;
};

class NcclGroup final : public DeviceGroup {
 public:
  NcclGroup(ViewId view, Rank rank, std::uint32_t size, std::shared_ptr<NcclRuntime> runtime,
            std::unique_ptr<LiveComm> comm)
      : view_(view),
        rank_(rank),
        size_(size),
        runtime_(std::move(runtime)),
        signal_(comm->signal()),
        thread_([this, owned = std::move(comm)]() mutable { run(std::move(owned)); }) {
    ::pthread_setname_np(thread_.native_handle(), "mayfly-comm");
  }
  ~NcclGroup() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    signal_->notify();
    thread_.join();
  }

  ViewId view() const override { return view_; }
  Rank rank() const override { return rank_; }
  std::uint32_t size() const override { return size_; }

  std::unique_ptr<Work> all_reduce(void* data, std::size_t count, DataType type,
                                   ReduceOp op) override {
    return reduce({.kind = DeviceTask::Kind::kAllReduce,
                   .from = data,
                   .to = data,
                   .count = count,
                   .type = type,
                   .op = op});
  }
  std::unique_ptr<Work> broadcast(std::span<std::byte> data, Rank root) override {
    ENSURE(value(root) < size_, "the root of a broadcast is a member of the group");
    return start({.kind = DeviceTask::Kind::kBroadcast,
                  .from = data.data(),
                  .to = data.data(),
                  .count = data.size(),
                  .root = value(root)});
  }
  std::unique_ptr<Work> all_gather(ByteSpan mine, std::span<std::byte> all) override {
    ENSURE(all.size() == mine.size() * size_, "all_gather needs room for every member's part");
    const std::byte* const own_place = all.data() + mine.size() * value(rank_);
    ENSURE(mine.empty() || mine.data() == own_place || mine.data() + mine.size() <= all.data() ||
               all.data() + all.size() <= mine.data(),
           "all_gather's own part is in its place or apart from all");
    return start({.kind = DeviceTask::Kind::kAllGather,
                  .from = mine.data(),
                  .to = all.data(),
                  .count = mine.size()});
  }
  std::unique_ptr<Work> barrier() override {
    void* const word = runtime_->api().scratch_word();
    return start({.from = word, .to = word, .count = 1});
  }

  void abort() noexcept override { signal_->abort(); }

  Result<void> follow(DeviceStream stream) override {
    LentEvent gate(*runtime_);
    if (!gate || runtime_->api().record_on(stream, gate.get()) != NcclStatus::kSuccess) {
      return Error{Errc::kIo,
                   fmt::format("cannot record an event on {}: {}", runtime_->api().device_name(),
                               runtime_->api().explain(nullptr))};
    }
    gates_.push_back(std::move(gate));
    return {};
  }

 private:
  std::unique_ptr<Work> reduce(const DeviceTask& task) {
    if (Result<void> supported = check_reduction(task.type, task.op); !supported.ok()) {
      auto operation = std::make_shared<DeviceOperation>(runtime_, task, std::exchange(gates_, {}));
      operation->finish(std::move(supported));
      return std::make_unique<NcclWork>(std::move(operation));
    }
    return start(task);
  }

  std::unique_ptr<Work> start(DeviceTask task) {
    task.rank = value(rank_);
    task.size = size_;
    auto operation = std::make_shared<DeviceOperation>(runtime_, task, std::exchange(gates_, {}));
    auto work = std::make_unique<NcclWork>(operation);
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(operation));
    }
    signal_->notify();
    return work;
  }

  // The communication thread.
  void run(std::unique_ptr<LiveComm> comm) {
    (void)runtime_->api().bind_thread();  // if the device fails here, the next call reports it
    bool closing = false;
    while (!(closing && comm->over())) {
      closing = take_orders(*comm, closing);
      if (const std::optional<Duration> pause = comm->turn()) {
        signal_->sleep(*pause);
      } else if (!(closing && comm->over())) {
        signal_->sleep();
      }
    }
  }

  // Returns whether the group is being destroyed.
  bool take_orders(LiveComm& comm, bool closing) {
    std::vector<std::shared_ptr<DeviceOperation>> started;
    bool close_now = false;
    {
      const std::lock_guard lock(mutex_);
      started.swap(queue_);
      close_now = closing_ && !closing;
    }
    for (std::shared_ptr<DeviceOperation>& operation : started) {
      comm.submit(std::move(operation));
    }
    if (close_now) {
      comm.close(monotonic_now() + kClosingMax);
    }
    return closing || close_now;
  }

  const ViewId view_;
  const Rank rank_;
  const std::uint32_t size_;
  const std::shared_ptr<NcclRuntime> runtime_;
  const std::shared_ptr<CommSignal> signal_;  // shared with the communicator
  std::vector<LentEvent> gates_;  // for the next operation; of the thread that starts operations

  std::mutex mutex_;
  std::vector<std::shared_ptr<DeviceOperation>> queue_;  // guarded by mutex_
  bool closing_ = false;                                 // guarded by mutex_
  std::thread thread_;  // the last member, because the thread uses the others
};

}  // namespace

Result<void> check_reduction(DataType type, ReduceOp op) {
  if (type == DataType::kInt16) {
    return Error{Errc::kUnsupported, "NCCL has no 16-bit integers: reduce int32 instead"};
  }
  if (op == ReduceOp::kMax && (type == DataType::kFloat16 || type == DataType::kBFloat16)) {
    return Error{Errc::kUnsupported,
                 "NCCL's maximum of 16-bit floats loses NaNs: take it in fp32 instead"};
  }
  return {};
}

std::unique_ptr<Group> make_nccl_group(ViewId view, Rank rank, std::uint32_t size,
                                       std::shared_ptr<NcclRuntime> runtime,
                                       std::unique_ptr<LiveComm> comm) {
  return std::make_unique<NcclGroup>(view, rank, size, std::move(runtime), std::move(comm));
}
namespace {

// On machines with many GPUs loading NCCL's kernels has taken up to a minute.
constexpr Duration kWarmUpMax = seconds(180);

/// Stops a formation in any of its parts. Any thread.
class FormationStop {
 public:
  void abort() noexcept;
  [[nodiscard]] bool aborted() const;

  /// Called by the forming thread: abort() also aborts this communicator from now on; null: none.
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

// How long a wait for a key lasts before the thread checks whether the formation was stopped: the
// first wait, and the longest; each is twice as long as the one before. The store of a job ends a
// wait itself when the view is over, and every wait costs it a message.
constexpr Duration kFirstStoreSlice = milliseconds(20);
constexpr Duration kStoreSliceMax = seconds(1);

// How long a store may take to answer for a key that is set; it may be on another host.
constexpr Duration kStoreAnswerMax = seconds(1);

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
    for (Duration slice = kFirstStoreSlice; !stop.aborted();
         slice = std::min(2 * slice, kStoreSliceMax)) {
      const Result<Bytes> got =
          spec_.store->get(prefix_ + "id", std::min(deadline, monotonic_now() + slice));
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

  // A member that has not arrived. The store is first asked for this member's own key: if it does
  // not answer that, it does not show anything about the other members.
  std::optional<MemberId> missing() const {
    if (!ask_for(value(spec_.rank)).ok()) {
      return std::nullopt;
    }
    for (std::uint32_t rank = 0; rank < spec_.peers.size(); ++rank) {
      if (rank == value(spec_.rank)) {
        continue;
      }
      if (const Result<void> there = ask_for(rank); !there.ok()) {
        const bool is_absent = there.error().code == Errc::kDeadline;
        return is_absent ? std::optional(spec_.peers[rank].member) : std::nullopt;
      }
    }
    return std::nullopt;
  }

 private:
  Result<void> ask_for(std::uint32_t rank) const {
    TRY(spec_.store->get(here(rank), monotonic_now() + kStoreAnswerMax));
    return {};
  }

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
  if (error.code == Errc::kDeadline && spec.peers.size() > 1) {
    error.culprit = MeetingPlace(spec).missing();
    if (!error.culprit) {
      const char* const interface = std::getenv("NCCL_SOCKET_IFNAME");
      error.detail += fmt::format("; NCCL's network interface (NCCL_SOCKET_IFNAME) is {}",
                                  interface == nullptr ? "its own choice" : interface);
    }
  }
  return error;
}

class NcclTransport final : public Transport {
 public:
  NcclTransport(std::shared_ptr<NcclRuntime> runtime, std::string address)
      : runtime_(std::move(runtime)), address_(std::move(address)) {}

  // Peers meet in the store; the address is only a readable name.
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

Result<void> judge(const NcclFacts& facts) {
  TRY(judge_gpu(facts.gpu));
  // A newer NCCL accepts the configuration of an older one, but not the reverse.
  if (facts.found_nccl / 100 < facts.built_nccl / 100) {
    const auto version = [](int number) {
      return library_version(static_cast<std::size_t>(number));
    };
    return Error{Errc::kUnsupported,
                 fmt::format("NCCL is too old: {} was found, this build needs {} or newer",
                             version(facts.found_nccl), version(facts.built_nccl / 100 * 100))};
  }
  if (facts.blocking_forced) {
    return Error{
        Errc::kUnsupported,
        "NCCL_COMM_BLOCKING=1 makes groups that cannot be aborted; unset it in the environment"};
  }
  return {};
}

}  // namespace mayfly::collectives
