#include "collectives/nccl/nccl_transport.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "collectives/forming_guard.hpp"
#include "collectives/nccl/comm_formation.hpp"
#include "collectives/nccl/nccl_group.hpp"

namespace mayfly::collectives {
namespace {

// Loading NCCL's kernels was seen to take most of a minute on machines with many GPUs.
constexpr Duration kWarmUpMax = seconds(180);

using ConnectedComm = Result<std::unique_ptr<LiveComm>>;

bool same_view(const GroupSpec& a, const GroupSpec& b) {
  const auto same_member = [](const Peer& x, const Peer& y) { return x.member == y.member; };
  return a.view == b.view && a.key == b.key && a.rank == b.rank &&
         std::equal(a.peers.begin(), a.peers.end(), b.peers.begin(), b.peers.end(), same_member);
}

// A communicator in the making on a thread of its own.
class Preparation {
 public:
  /// `guard` stops it when its view is given up.
  Preparation(std::shared_ptr<NcclRuntime> runtime, GroupSpec spec, Instant deadline,
              FormingGuard& guard)
      : spec_(std::move(spec)),
        entry_(guard.enter(spec_.view, [this] { stop_.abort(); })),
        thread_([this, kept = std::move(runtime), deadline] { run(kept, deadline); }) {
    ::pthread_setname_np(thread_.native_handle(), "mayfly-form");
  }
  ~Preparation() {
    stop_.abort();
    thread_.join();
  }

  [[nodiscard]] const GroupSpec& spec() const { return spec_; }

  /// Once. Blocks until it is done or failed.
  ConnectedComm take(Instant deadline) {
    const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline.ns)};
    std::unique_lock lock(mutex_);
    if (!done_.wait_until(lock, until, [&] { return outcome_.has_value(); })) {
      return Error{Errc::kDeadline, "the prepared communicator is not there in time"};
    }
    return std::move(*outcome_);
  }

 private:
  void run(const std::shared_ptr<NcclRuntime>& runtime, Instant deadline) {
    (void)runtime->api().bind_thread();
    ConnectedComm outcome = connect_comm(runtime, spec_, deadline, stop_);
    const std::lock_guard lock(mutex_);
    outcome_ = std::move(outcome);
    done_.notify_all();
  }

  const GroupSpec spec_;
  FormationStop stop_;
  const FormingGuard::Entry entry_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::optional<ConnectedComm> outcome_;  // guarded by mutex_
  std::thread thread_;                    // the last: it uses all of the above
};

class NcclTransport final : public DeviceTransport {
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
      return given_up(spec);
    }
    ConnectedComm comm = connect(spec, deadline, stop);
    if (!comm.ok()) {
      return explained(spec, std::move(comm).error());
    }
    if (Result<void> met = meet_members(*comm.value(), spec, deadline, stop); !met.ok()) {
      return explained(spec, std::move(met).error());
    }
    return std::unique_ptr<Group>(make_nccl_group(spec.view, spec.rank,
                                                  static_cast<std::uint32_t>(spec.peers.size()),
                                                  runtime_, std::move(comm).value()));
  }

  void prepare(const GroupSpec& spec, Instant deadline) override {
    preparation_.reset();
    preparation_ = std::make_unique<Preparation>(runtime_, spec, deadline, preparing_guard_);
  }

  void give_up_on(ViewId view) noexcept override {
    forming_guard_.give_up_on(view);
    preparing_guard_.give_up_on(view);
  }

 private:
  ConnectedComm connect(const GroupSpec& spec, Instant deadline, FormationStop& stop) {
    std::unique_ptr<Preparation> prepared = std::exchange(preparation_, nullptr);
    if (prepared && same_view(prepared->spec(), spec)) {
      return prepared->take(deadline);
    }
    prepared.reset();  // of a view that never came
    return connect_comm(runtime_, spec, deadline, stop);
  }

  // What fails because the view was given up says so.
  static Error explained(const GroupSpec& spec, Error error) {
    return error.code == Errc::kAborted ? given_up(spec) : std::move(error);
  }

  static Error given_up(const GroupSpec& spec) {
    return {Errc::kAborted, fmt::format("view {} was given up", value(spec.view))};
  }

  const std::shared_ptr<NcclRuntime> runtime_;
  const std::string address_;
  FormingGuard forming_guard_;
  FormingGuard preparing_guard_;
  std::unique_ptr<Preparation> preparation_;
};

// Loads the kernels.
Result<void> warm_up(const std::shared_ptr<NcclRuntime>& runtime) {
  GroupSpec alone;
  alone.peers.push_back({});
  const Instant deadline = monotonic_now() + kWarmUpMax;
  FormationStop never;
  const ConnectedComm comm = connect_comm(runtime, alone, deadline, never);
  return comm.ok() ? meet_members(*comm.value(), alone, deadline, never) : comm.error();
}

}  // namespace

Result<std::unique_ptr<DeviceTransport>> make_nccl_transport(std::unique_ptr<NcclApi> api,
                                                             const std::string& address) {
  auto runtime = std::make_shared<NcclRuntime>(std::move(api));
  (void)runtime->api().bind_thread();
  TRY(warm_up(runtime));
  return std::unique_ptr<DeviceTransport>(
      std::make_unique<NcclTransport>(std::move(runtime), address));
}

}  // namespace mayfly::collectives
