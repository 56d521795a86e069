#include "base/process/spawn.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <map>

#include "base/check.hpp"
#include "base/environment.hpp"

namespace mayfly {
namespace {

constexpr int kFirstOther = 3;  // this and higher descriptors are closed in the program
constexpr mode_t kFileMode = 0644;

/// The signals that a program must not inherit as ignored. An ignored hangup is inherited, because
/// nohup also applies to the program: a shell that loses its terminal often sends the hangup to the
/// program's process group.
sigset_t signals_to_restore() {
  sigset_t all;
  sigfillset(&all);
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler == SIG_IGN) {
    sigdelset(&all, SIGHUP);
  }
  return all;
}

ProcessEnd end_in(int status) {
  return WIFSIGNALED(status) ? ProcessEnd{.signal = WTERMSIG(status)}
                             : ProcessEnd{.exit_code = WEXITSTATUS(status)};
}

}  // namespace

struct SpawnPlan::Attributes {
  posix_spawn_file_actions_t files{};
  posix_spawnattr_t general{};
  bool leads_group = false;
};

std::vector<char*> exec_pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) {
    pointers.push_back(const_cast<char*>(text.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> merged_environment(
    const std::vector<std::pair<std::string, std::string>>& additions,
    const std::vector<std::string>& without) {
  std::map<std::string, std::string> merged = environment();
  for (const std::string& name : without) {
    merged.erase(name);
  }
  for (const auto& [name, value] : additions) {
    merged[name] = value;
  }
  std::vector<std::string> lines;
  for (const auto& [name, value] : merged) {
    lines.push_back(name + "=" + value);
  }
  return lines;
}

SpawnPlan::SpawnPlan() : attributes_(std::make_unique<Attributes>()) {
  ::posix_spawn_file_actions_init(&attributes_->files);
  ::posix_spawnattr_init(&attributes_->general);
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes_->general, &none);
}

SpawnPlan::~SpawnPlan() {
  ::posix_spawn_file_actions_destroy(&attributes_->files);
  ::posix_spawnattr_destroy(&attributes_->general);
}

void SpawnPlan::open(int theirs, const std::string& path, int flags) {
  ::posix_spawn_file_actions_addopen(&attributes_->files, theirs, path.c_str(), flags, kFileMode);
}

void SpawnPlan::copy(int theirs, int descriptor) {
  ::posix_spawn_file_actions_adddup2(&attributes_->files, descriptor, theirs);
}

void SpawnPlan::lead_group() {
  attributes_->leads_group = true;
  ::posix_spawnattr_setpgroup(&attributes_->general, 0);
}

int SpawnPlan::start(const std::vector<std::string>& argv,
                     const std::vector<std::string>& environment, int& pid) {
  ENSURE(!argv.empty(), "there is a program to start");
  ::posix_spawn_file_actions_addclosefrom_np(&attributes_->files, kFirstOther);
  const sigset_t not_ignored = signals_to_restore();
  ::posix_spawnattr_setsigdefault(&attributes_->general, &not_ignored);
  const int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                    (attributes_->leads_group ? POSIX_SPAWN_SETPGROUP : 0);
  ::posix_spawnattr_setflags(&attributes_->general, static_cast<short>(flags));
  const std::vector<char*> arguments = exec_pointers(argv);
  const std::vector<char*> variables = exec_pointers(environment);
  return ::posix_spawnp(&pid, arguments[0], &attributes_->files, &attributes_->general,
                        arguments.data(), variables.data());
}

ProcessEnd wait_for_end(int child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return end_in(status);
}

std::optional<ProcessEnd> end_if_over(int child) {
  int status = 0;
  const pid_t ended = ::waitpid(child, &status, WNOHANG);
  const bool is_over = ended == child || (ended < 0 && errno == ECHILD);
  return is_over ? std::optional(end_in(status)) : std::nullopt;
}

}  // namespace mayfly
