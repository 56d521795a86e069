#include "collectives/mpi/mpi_world.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/parse.hpp"
#include "base/signals_blocked.hpp"
#include "base/try_assign.hpp"

namespace mayfly::collectives {
namespace {

constexpr Duration kStartTimeout = seconds(120);
constexpr Duration kWatchInterval = milliseconds(50);  // of a watchdog whose clock runs
constexpr int kTagPairsMax = 1 << 20;

/// True if mpirun was called with this setting for its ranks.
bool is_set(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr && (std::strcmp(text, "1") == 0 || std::strcmp(text, "true") == 0);
}

/// Unique per mpirun and equal on all its ranks.
std::string job_name() {
  const char* name = std::getenv("PMIX_NAMESPACE");
  return name == nullptr ? "" : name;
}

/// Makes the symbols of Open MPI's library global, as its components expect. They are not, because
/// the library was loaded together with a module.
void make_symbols_global() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&MPI_Init_thread), &info) != 0) {
    (void)::dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
  }
}

Result<void> start_mpi() {
  ::signal(SIGPIPE, SIG_IGN);    // Open MPI writes to sockets whose other end may be dead
  const SignalsBlocked blocked;  // MPI's own threads must not answer them
  make_symbols_global();
  int provided = MPI_THREAD_SINGLE;
  TRY(check_mpi(::MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided),
                "MPI_Init_thread"));
  if (provided < MPI_THREAD_SERIALIZED) {
    return Error{Errc::kUnsupported, "this MPI cannot be called from several threads"};
  }
  return {};
}

// Four times the size of the ring's pieces: if there are several networks or links, Open MPI
// spreads a large message over them. Connections that it makes later are kept when a view forms.
constexpr int kConnectingBytes = 1 << 20;
constexpr int kConnectingTag = 0;

// Makes Open MPI connect every two ranks of `comm`, which it does with the first message between
// them; returns when this rank is connected with all others. Collective: all ranks call it at once,
// and none may die meanwhile. Takes two messages of 1 MiB per other rank.
//
// Ranks are connected pair by pair, in the same order on all ranks, so that no two wait for each
// other. The lower rank of a pair sends first, because Open MPI closes one of two connections that
// meet half-way.
void connect_all(MPI_Comm comm) {
  int rank = 0;
  int size = 0;
  ::MPI_Comm_rank(comm, &rank);
  ::MPI_Comm_size(comm, &size);
  std::vector<std::byte> message(kConnectingBytes);
  const auto send = [&](int other) {
    ::MPI_Send(message.data(), kConnectingBytes, MPI_BYTE, other, kConnectingTag, comm);
  };
  const auto receive = [&](int other) {
    ::MPI_Recv(message.data(), kConnectingBytes, MPI_BYTE, other, kConnectingTag, comm,
               MPI_STATUS_IGNORE);
  };
  for (int other = 0; other < size; ++other) {
    if (other < rank) {
      receive(other);
      send(other);
    } else if (other > rank) {
      send(other);
      receive(other);
    }
  }
}

}  // namespace

Watchdog::Watchdog(Duration limit, const char* reason)
    : limit_(limit), reason_(reason), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

// Either enter() sees that the clock runs, or the clock's thread sees the call.
bool Watchdog::enter() {
  is_inside_.store(true);
  if (runs_.load()) {
    is_inside_.store(false);
    return false;
  }
  return true;
}

void Watchdog::leave() {
  is_inside_.store(false, std::memory_order_release);
}

void Watchdog::start_clock() noexcept {
  const std::lock_guard lock(mutex_);
  runs_.store(true);
  changed_.notify_one();
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return runs_.load() || ends_; });
  const Instant deadline = monotonic_now() + limit_;
  while (!ends_ && is_inside_.load()) {
    if (monotonic_now() >= deadline) {
      ::dprintf(STDERR_FILENO, "mayfly: %s\n", reason_);  // a module's log is not the program's
      ::_exit(1);
    }
    changed_.wait_for(lock, kWatchInterval);
  }
}

Result<void> check_mpi(int code, const char* what, std::optional<MemberId> with) {
  if (code == MPI_SUCCESS) {
    return {};
  }
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  int kind = MPI_SUCCESS;
  ::MPI_Error_string(code, text, &length);
  ::MPI_Error_class(code, &kind);
  return Error{kind == MPI_ERR_TRUNCATE ? Errc::kCorrupt : Errc::kPeerLost,
               fmt::format("{} failed: {}", what, text), with};
}

Result<void> MpiWorld::probe() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr || job_name().empty()) {
    return Error{Errc::kUnsupported,
                 "the mpi transport works only in processes that Open MPI's mpirun started: "
                 "mpirun -np N mayfly train --backend mpi ..."};
  }
  return {};
}

Result<std::unique_ptr<MpiWorld>> MpiWorld::start(bool share_cores) {
  TRY(probe());
  if (share_cores) {
    ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  }
  std::unique_ptr<FdHolder> holder;
  if (is_set("OMPI_MCA_orte_enable_recovery")) {
    TRY_ASSIGN(holder, FdHolder::start());
  }
  Watchdog watch(kStartTimeout,
                 "MPI did not start within two minutes: a rank of this mpirun died before it did; "
                 "start the job again");
  (void)watch.enter();
  watch.start_clock();
  TRY(start_mpi());
  if (holder != nullptr) {
    holder->note_ports();
  }
  return std::unique_ptr<MpiWorld>(new MpiWorld(std::move(holder)));
}

MpiWorld::MpiWorld(std::unique_ptr<FdHolder> holder)
    : holder_(std::move(holder)), job_(job_name()) {
  // This communicates with all ranks, and no rank may have died yet.
  if (elastic()) {
    connect_and_keep();
  }
  // Errors on it are returned, not fatal.
  ::MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
  ::MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  ::MPI_Comm_rank(comm_, &rank_);
  ::MPI_Comm_size(comm_, &size_);
  int* tag_max = nullptr;
  int found = 0;
  ::MPI_Comm_get_attr(comm_, MPI_TAG_UB, static_cast<void*>(&tag_max), &found);
  tag_pairs_ = std::min(kTagPairsMax, found != 0 ? *tag_max / 2 : 1 << 14);
}

// If a connection breaks before the holders of both its ends have a copy, the surviving rank may
// end, too. So no rank continues until all have passed on their copies.
void MpiWorld::connect_and_keep() {
  begin_connecting();
  connect_all(MPI_COMM_WORLD);
  keep_connections();
  ::MPI_Barrier(MPI_COMM_WORLD);
}

MpiWorld::~MpiWorld() {
  sweep();
  // Under --enable-recovery a rank may die or leave at any time, also while others wait for it in
  // MPI_Finalize. There mpirun accepts an exit without MPI_Finalize as normal.
  if (!elastic() && was_in_view_.load() && !spoiled_.load()) {
    ::MPI_Comm_free(&comm_);
    ::MPI_Finalize();
  }
}

std::string MpiWorld::address() const {
  return fmt::format("mpi:{}:{}", job_, rank_);
}

Result<std::vector<int>> MpiWorld::ranks_of(const std::vector<Peer>& peers) const {
  const std::string prefix = fmt::format("mpi:{}:", job_);
  std::vector<int> ranks;
  for (const Peer& peer : peers) {
    const std::string_view address = peer.address;
    const std::optional<int> rank =
        address.starts_with(prefix) ? number_in<int>(address.substr(prefix.size()), 0, size_ - 1)
                                    : std::nullopt;
    if (!rank) {
      return Error{Errc::kInvalidInput,
                   fmt::format("member {} at {} is not one of this mpirun's {} ranks",
                               value(peer.member), peer.address, size_),
                   peer.member};
    }
    ranks.push_back(*rank);
  }
  return ranks;
}

int MpiWorld::tag_of(ViewId view, int kind) const {
  return static_cast<int>(value(view) % static_cast<std::uint64_t>(tag_pairs_)) * 2 + kind;
}

void MpiWorld::begin_connecting() {
  if (holder_ != nullptr) {
    holder_->begin();
  }
}

void MpiWorld::keep_connections() {
  if (holder_ != nullptr) {
    holder_->keep_new();
  }
}

void MpiWorld::abandon(AbandonedMessage message) {
  if (message.request != MPI_REQUEST_NULL) {
    ::MPI_Cancel(&message.request);  // has no effect on a send
    abandoned_.push_back(std::move(message));
  }
}

void MpiWorld::settle() {
  sweep();
  int found = 0;
  ::MPI_Iprobe(MPI_ANY_SOURCE, tag_of(ViewId{0}, kHelloTag), comm_, &found, MPI_STATUS_IGNORE);
}

void MpiWorld::sweep() {
  std::erase_if(abandoned_, [](AbandonedMessage& message) {
    int done = 0;
    return ::MPI_Test(&message.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
  });
}

}  // namespace mayfly::collectives
