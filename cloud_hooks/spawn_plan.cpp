#include "cloud_hooks/spawn_plan.hpp"

#include <unistd.h>

#include <csignal>
#include <map>

#include "base/check.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr int kFirstOther = 3;  // this and higher descriptors are closed in the program
constexpr mode_t kFileMode = 0644;

/// As the exec calls want them; valid as long as `texts`.
std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) {
    pointers.push_back(text.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::vector<std::string> merged_environment(
    const std::vector<std::pair<std::string, std::string>>& additions) {
  std::map<std::string, std::string> merged;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) {
      merged[text.substr(0, equals)] = text.substr(equals + 1);
    }
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

SpawnPlan::SpawnPlan() {
  ::posix_spawn_file_actions_init(&files_);
  ::posix_spawnattr_init(&attributes_);
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes_, &none);
  sigset_t all;
  sigfillset(&all);
  ::posix_spawnattr_setsigdefault(&attributes_, &all);
}

SpawnPlan::~SpawnPlan() {
  ::posix_spawn_file_actions_destroy(&files_);
  ::posix_spawnattr_destroy(&attributes_);
}

void SpawnPlan::open(int theirs, const std::string& path, int flags) {
  ::posix_spawn_file_actions_addopen(&files_, theirs, path.c_str(), flags, kFileMode);
}

void SpawnPlan::copy(int theirs, int descriptor) {
  ::posix_spawn_file_actions_adddup2(&files_, descriptor, theirs);
}

void SpawnPlan::lead_group() {
  leads_group_ = true;
  ::posix_spawnattr_setpgroup(&attributes_, 0);
}

int SpawnPlan::start(std::vector<std::string> argv, std::vector<std::string> environment,
                     pid_t& pid) {
  ENSURE(!argv.empty(), "there is a program to start");
  ::posix_spawn_file_actions_addclosefrom_np(&files_, kFirstOther);
  const int flags =
      POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | (leads_group_ ? POSIX_SPAWN_SETPGROUP : 0);
  ::posix_spawnattr_setflags(&attributes_, static_cast<short>(flags));
  const std::vector<char*> arguments = pointers_to(argv);
  const std::vector<char*> variables = pointers_to(environment);
  return ::posix_spawnp(&pid, arguments[0], &files_, &attributes_, arguments.data(),
                        variables.data());
}

}  // namespace mayfly::cloud_hooks
