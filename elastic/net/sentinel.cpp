#include "elastic/net/sentinel.hpp"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <new>

#include "base/check.hpp"
#include "base/system_error.hpp"
#include "base/try_assign.hpp"
#include "base/unique_fd.hpp"
#include "elastic/net/job_token.hpp"
#include "elastic/net/sentinel_process.hpp"

namespace mayfly::elastic {
namespace {

constexpr int kMemoryDescriptor = 3;  // descriptor of the shared memory in a spawned process

struct Unmap {
  void operator()(SentinelShared* shared) const { ::munmap(shared, sizeof(SentinelShared)); }
};
using SharedPage = std::unique_ptr<SentinelShared, Unmap>;

int init_robust_mutex(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  const int rc = ::pthread_mutex_init(&mutex, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  return rc;
}

/// `fd`: the descriptor of the memory; -1 = anonymous memory.
Result<SharedPage> make_shared_page(int fd) {
  const int kind = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
  void* memory = ::mmap(nullptr, sizeof(SentinelShared), PROT_READ | PROT_WRITE, kind, fd, 0);
  if (memory == MAP_FAILED) {
    return system_error("cannot map memory for the sentinel", errno);
  }
  SharedPage shared(new (memory) SentinelShared);
  if (const int rc = init_robust_mutex(shared->alive); rc != 0) {
    return system_error("cannot make the sentinel's mutex", rc);
  }
  return shared;
}

class ForkedSentinel final : public Sentinel {
 public:
  ForkedSentinel(SharedPage shared, pid_t child) : shared_(std::move(shared)), child_(child) {}
  ~ForkedSentinel() override;

  void arm(const std::vector<std::string>& endpoints, std::size_t connected, ByteSpan token,
           MemberId self, std::uint64_t job) override;
  void follow(std::size_t connected) override;
  /// If the worker dies between the two stores, the new author is reported with an old incarnation.
  /// The new coordinator does not count such a report, because its own incarnation is higher.
  void adopt(Incarnation incarnation, std::uint64_t author) override {
    shared_->author.store(author);
    shared_->incarnation.store(value(incarnation));
  }
  void give_up() override { shared_->gave_up.store(true); }
  [[nodiscard]] ProgressBoard& board() override { return shared_->board; }
  [[nodiscard]] int pid() const override { return child_; }

 private:
  SharedPage shared_;
  pid_t child_;
};

void ForkedSentinel::arm(const std::vector<std::string>& endpoints, std::size_t connected,
                         ByteSpan token, MemberId self, std::uint64_t job) {
  if (!shared_->armed.load()) {
    ENSURE(!endpoints.empty() && endpoints.size() <= kEndpointsMax, "checked with the settings");
    ENSURE(token.size() <= sizeof(shared_->token), "a token is short");
    for (std::size_t i = 0; i < endpoints.size(); ++i) {
      ENSURE(endpoints[i].size() < sizeof(shared_->endpoints[i]), "a host name and a port");
      std::memcpy(shared_->endpoints[i], endpoints[i].c_str(), endpoints[i].size() + 1);
    }
    shared_->endpoint_count = endpoints.size();
    std::copy(token.begin(), token.end(), shared_->token);
    shared_->token_bytes = token.size();
  }
  shared_->job.store(job);
  shared_->self.store(value(self));
  follow(connected);
  shared_->armed.store(true);
}

void ForkedSentinel::follow(std::size_t connected) {
  shared_->connected.store(static_cast<std::uint32_t>(connected));
  shared_->connections.fetch_add(1);
}

ForkedSentinel::~ForkedSentinel() {
  shared_->ended_well.store(true);
  // Wakes the child now. Unlocking fails on another thread than the one that locked the mutex; then
  // the child sees the flag at its next heartbeat.
  ::pthread_mutex_unlock(&shared_->alive);
  const timespec pause{0, 1'000'000};
  int status = 0;
  for (int waited_ms = 0; waited_ms < 200; ++waited_ms) {
    if (::waitpid(child_, &status, WNOHANG) != 0) {
      return;
    }
    ::nanosleep(&pause, nullptr);
  }
  ::kill(child_, SIGKILL);  // it is blocked in a connection attempt, and has nothing to report
  ::waitpid(child_, &status, 0);
}

}  // namespace

Result<std::unique_ptr<Sentinel>> fork_sentinel() {
  TRY_ASSIGN(SharedPage shared, make_shared_page(-1));
  prepare_proofs();
  // Before the fork, so that the child never finds the mutex free while the worker is alive.
  const int rc = ::pthread_mutex_lock(&shared->alive);
  ENSURE(rc == 0, "a fresh mutex can be locked");
  const pid_t child = ::fork();
  if (child < 0) {
    return system_error("cannot fork the sentinel", errno);
  }
  if (child == 0) {
    run_sentinel(*shared);
  }
  return std::unique_ptr<Sentinel>(std::make_unique<ForkedSentinel>(std::move(shared), child));
}

Result<std::unique_ptr<Sentinel>> spawn_sentinel(const std::string& program) {
  const UniqueFd memory(::memfd_create("mayfly-sentinel", MFD_CLOEXEC));
  if (!memory.valid() || ::ftruncate(memory.get(), sizeof(SentinelShared)) != 0) {
    return system_error("cannot make memory for the sentinel", errno);
  }
  TRY_ASSIGN(SharedPage shared, make_shared_page(memory.get()));
  const int rc = ::pthread_mutex_lock(&shared->alive);
  ENSURE(rc == 0, "a fresh mutex can be locked");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, memory.get(), kMemoryDescriptor);
  std::string words[] = {program, kSentinelCommand};
  char* const arguments[] = {words[0].data(), words[1].data(), nullptr};
  pid_t child = -1;
  const int failure = ::posix_spawn(&child, program.c_str(), &actions, nullptr, arguments, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    return system_error("cannot start " + program, failure);
  }
  return std::unique_ptr<Sentinel>(std::make_unique<ForkedSentinel>(std::move(shared), child));
}

void run_spawned_sentinel() {
  void* memory = ::mmap(nullptr, sizeof(SentinelShared), PROT_READ | PROT_WRITE, MAP_SHARED,
                        kMemoryDescriptor, 0);
  auto* const shared = static_cast<SentinelShared*>(memory);
  struct stat info {};
  const bool is_whole = memory != MAP_FAILED && ::fstat(kMemoryDescriptor, &info) == 0 &&
                        info.st_size == sizeof(SentinelShared);
  if (is_whole && shared->bytes == sizeof(SentinelShared)) {
    prepare_proofs();
    run_sentinel(*shared);
  }
}

}  // namespace mayfly::elastic
