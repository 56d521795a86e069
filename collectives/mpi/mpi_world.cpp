#include "collectives/mpi/mpi_world.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "collectives/mpi/mpi_wiring.hpp"

namespace mayfly::collectives {
namespace {

constexpr std::chrono::minutes kStartTimeout{2};
constexpr int kTagPairsMax = 1 << 20;

// Of a setting that mpirun hands to its ranks.
bool is_set(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr && (std::strcmp(text, "1") == 0 || std::strcmp(text, "true") == 0);
}

/// Unique per mpirun and equal on all its ranks.
std::string job_name() {
  const char* name = std::getenv("PMIX_NAMESPACE");
  return name == nullptr ? "" : name;
}

/// Open MPI's components expect its symbols to be global, which those of a library that came with a
/// module are not.
void make_symbols_global() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&MPI_Init_thread), &info) != 0) {
    (void)::dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
  }
}

/// Ends the process if it is not destroyed in time.
class StartWatch {
 public:
  StartWatch() : thread_([this] { watch(); }) {}
  ~StartWatch() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kStartTimeout, [this] { return over_; })) {
      leave_process(
          "MPI did not start within two minutes: a rank of this mpirun died before it "
          "did; start the job again");
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;   // guarded by mutex_
  std::thread thread_;  // last: uses the rest
};

/// MPI's own threads must not answer the process's signals.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

Result<void> start_mpi() {
  ::signal(SIGPIPE, SIG_IGN);  // Open MPI writes to sockets whose other end may be dead
  const SignalsBlocked blocked;
  make_symbols_global();
  int provided = MPI_THREAD_SINGLE;
  if (Result<void> started = check_mpi(
          ::MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
      !started.ok()) {
    return started;
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    return Error{Errc::kUnsupported, "this MPI cannot be called from several threads"};
  }
  return {};
}

}  // namespace

void leave_process(const char* reason) {
  ::dprintf(STDERR_FILENO, "mayfly: %s\n", reason);  // a module's log is not the program's
  ::_exit(1);
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
  std::unique_ptr<SocketHolder> keeper;
  if (is_set("OMPI_MCA_orte_enable_recovery")) {
    Result<std::unique_ptr<SocketHolder>> forked = SocketHolder::start();
    if (!forked.ok()) {
      return forked.error();
    }
    keeper = std::move(forked).value();
  }
  const StartWatch watch;
  TRY(start_mpi());
  if (keeper != nullptr) {
    keeper->note_ports();
  }
  return std::unique_ptr<MpiWorld>(new MpiWorld(std::move(keeper)));
}

MpiWorld::MpiWorld(std::unique_ptr<SocketHolder> keeper)
    : keeper_(std::move(keeper)), job_(job_name()) {
  // Communication of all ranks; nothing may have died yet.
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

// A connection that breaks before the keepers of both its ends have it may end the survivor. So no
// rank goes on, to where it may die, before all have given theirs away.
void MpiWorld::connect_and_keep() {
  begin_connecting();
  connect_all(MPI_COMM_WORLD);
  keep_connections();
  ::MPI_Barrier(MPI_COMM_WORLD);
}

MpiWorld::~MpiWorld() {
  sweep();
  // Under --enable-recovery a rank may die, or leave early, whenever it likes, also while others
  // wait for it in MPI_Finalize; mpirun takes an exit without it for a normal one there.
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
    int rank = -1;
    if (address.starts_with(prefix)) {
      const char* const end = address.data() + address.size();
      const auto parsed = std::from_chars(address.data() + prefix.size(), end, rank);
      rank = parsed.ec == std::errc{} && parsed.ptr == end ? rank : -1;
    }
    if (rank < 0 || rank >= size_) {
      return Error{Errc::kInvalidInput,
                   fmt::format("member {} at {} is not one of this mpirun's {} ranks",
                               value(peer.member), peer.address, size_),
                   peer.member};
    }
    ranks.push_back(rank);
  }
  return ranks;
}

int MpiWorld::tag_of(ViewId view, int kind) const {
  return static_cast<int>(value(view) % static_cast<std::uint64_t>(tag_pairs_)) * 2 + kind;
}

void MpiWorld::begin_connecting() {
  if (keeper_ != nullptr) {
    keeper_->begin();
  }
}

void MpiWorld::keep_connections() {
  if (keeper_ != nullptr) {
    keeper_->keep_new();
  }
}

void MpiWorld::abandon(AbandonedMessage message) {
  if (message.request != MPI_REQUEST_NULL) {
    ::MPI_Cancel(&message.request);  // of a send: no effect
    abandoned_.push_back(std::move(message));
  }
}

void MpiWorld::sweep() {
  std::erase_if(abandoned_, [](AbandonedMessage& message) {
    int done = 0;
    return ::MPI_Test(&message.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
  });
}

}  // namespace mayfly::collectives
