#include "tests/gpu/member_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "base/check.hpp"

namespace mayfly::collectives::gpu_test {
namespace {

constexpr int kHangMs = 120'000;

// NCCL reads its environment at its first call, so it has to be there from the start.
std::vector<std::string> environment_of(int id) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    all.emplace_back(*entry);
  }
  for (const char* const setting :
       {"NCCL_NET=Socket", "NCCL_SOCKET_IFNAME=lo", "NCCL_IB_DISABLE=1", "NCCL_NVLS_ENABLE=0",
        "NCCL_RAS_ENABLE=0", "NCCL_MIN_CTAS=1", "NCCL_MAX_CTAS=2", "NCCL_DEBUG_FILE=/dev/stderr"}) {
    all.emplace_back(setting);
  }
  all.push_back("NCCL_HOSTID=mayfly-test-" + std::to_string(id));
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) {
    pointers.push_back(text.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

MemberProcess::MemberProcess(int id, const std::string& folder) : id_(id) {
  std::array<int, 2> in{};
  std::array<int, 2> out{};
  ENSURE((::pipe2(in.data(), O_CLOEXEC) | ::pipe2(out.data(), O_CLOEXEC)) == 0, "two pipes");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  std::vector<std::string> words{"gpu_tests", "--member", folder};
  std::vector<std::string> environment = environment_of(id);
  const int spawned = ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr,
                                    pointers_to(words).data(), pointers_to(environment).data());
  ENSURE(spawned == 0, "a member process starts");
  posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  to_ = UniqueFd(in[1]);
  from_ = UniqueFd(out[0]);
}

MemberProcess::~MemberProcess() {
  kill();
}

void MemberProcess::kill() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
}

void MemberProcess::stop() {
  ::kill(pid_, SIGSTOP);
}

void MemberProcess::tell(const std::string& line) {
  const std::string text = line + "\n";
  // A member that is gone is found out by hear().
  [[maybe_unused]] const ssize_t written = ::write(to_.get(), text.data(), text.size());
}

std::string MemberProcess::hear() {
  while (heard_.find('\n') == std::string::npos) {
    pollfd ready{.fd = from_.get(), .events = POLLIN, .revents = 0};
    std::array<char, 512> chunk{};
    if (::poll(&ready, 1, kHangMs) <= 0) {
      return "hangs";
    }
    const ssize_t got = ::read(from_.get(), chunk.data(), chunk.size());
    if (got <= 0) {
      return "gone";
    }
    heard_.append(chunk.data(), static_cast<std::size_t>(got));
  }
  const std::size_t end = heard_.find('\n');
  const std::string line = heard_.substr(0, end);
  heard_.erase(0, end + 1);
  return line;
}

void tell_view(const Members& members, int view) {
  std::string peers;
  for (const auto& member : members) {
    peers += " " + std::to_string(member->id());
  }
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    members[rank]->tell("form " + std::to_string(view) + " " + std::to_string(rank) + peers);
  }
}

void tell_all(const Members& members, const std::string& line) {
  for (const auto& member : members) {
    member->tell(line);
  }
}

}  // namespace mayfly::collectives::gpu_test
