#include "engine/launch/program_command.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>

#include "base/absolute_path.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "base/process/spawn.hpp"
#include "cloud_hooks/local_provider.hpp"
#include "engine/config/config.hpp"
#include "engine/membership/exit_codes.hpp"
#include "engine/membership/signal_watcher.hpp"

extern char** environ;

namespace mayfly::engine {
namespace {

constexpr const char* kLibraryFile = "libmayfly.so.0";

std::string text_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

/// The variable of a setting: "bind-host" and "bind_host" are MAYFLY_BIND_HOST.
std::string variable_of(std::string name) {
  for (char& c : name) {
    c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return "MAYFLY_" + name;
}

/// The user's value of the variable, followed by `folder`.
std::string path_with(const char* variable, const std::string& folder) {
  const std::string before = text_of(variable);
  return before.empty() || folder.empty() ? before + folder : before + ":" + folder;
}

/// The folder of the Python package beside this executable: in a build, in a bundle, or installed,
/// because Python does not search every prefix. Empty = nothing to add.
std::string python_path() {
  std::filesystem::path package = find_beside_program("python/mayfly/__init__.py");
  if (package.empty()) {
    package = find_beside_program("python3/dist-packages/mayfly/__init__.py");
  }
  return package.empty() ? "" : path_with("PYTHONPATH", package.parent_path().parent_path());
}

/// An empty path stays empty.
std::string absolute(const std::string& path) {
  return path.empty() ? path : absolute_path(path);
}

/// Restores the signals that main() ignores, so that `yes | head` in a user's script ends quietly.
/// Returns 0 or an errno.
int start_command(const std::vector<char*>& words, pid_t& child) {
  sigset_t restored;
  ::sigemptyset(&restored);
  for (const int signal : kIgnoredByMain) {
    ::sigaddset(&restored, signal);
  }
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setsigdefault(&attributes, &restored);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const int failure = ::posix_spawnp(&child, words[0], nullptr, &attributes, words.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  return failure;
}

bool is_executable(const std::filesystem::path& path) {
  std::error_code absent;
  return std::filesystem::is_regular_file(path, absent) && ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

Result<void> check_program(const std::vector<std::string>& command) {
  if (command.empty()) {
    return {};
  }
  const std::string& name = command.front();
  std::error_code absent;
  const bool exists = std::filesystem::exists(name, absent);
  if (name.find('/') != std::string::npos) {
    if (is_executable(name)) {
      return {};
    }
    return exists ? Error{Errc::kInvalidInput, name + " is not an executable file"}
                  : Error{Errc::kNotFound, name + " does not exist"};
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/bin:/usr/bin" : path);  // as execvp()
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (is_executable(std::filesystem::path(folder) / name)) {
      return {};
    }
  }
  return Error{Errc::kNotFound,
               fmt::format("there is no program '{}' in PATH{}", name,
                           exists ? "; the file in this folder is ./" + name : "")};
}

std::vector<std::string> command_at(const ProgramPlace& place,
                                    const std::vector<std::string>& command) {
  std::vector<std::string> words = {"/usr/bin/env"};
  if (!place.folder.empty()) {
    words.insert(words.end(), {"-C", place.folder});
  }
  words.emplace_back("MAYFLY_CHAOS=");
  const auto add = [&words](const char* name, const std::string& value) {
    if (!value.empty()) {
      words.push_back(fmt::format("{}={}", name, value));
    }
  };
  if (place.is_launched) {
    add("MAYFLY_LAUNCHED", "true");
    add("MAYFLY_WORKER_NUMBER", std::to_string(place.number));
  }
  add(cloud_hooks::kSlotVariable, place.slot ? std::to_string(*place.slot) : "");
  add("MAYFLY_COORDINATOR", place.coordinator);
  // The program may change its working folder, or be started in another one.
  add(kJobFileVariable, absolute(place.job_file));
  add("MAYFLY_RUN_DIR", absolute(place.run_dir));
  add("MAYFLY_TOKEN_FILE", absolute(place.token_file));
  add("MAYFLY_BIND_HOST", place.bind_host);
  for (const auto& [name, value] : place.settings) {
    add(variable_of(name).c_str(), value);
  }
  if (const std::filesystem::path library = find_beside_program(kLibraryFile); !library.empty()) {
    add(kLibraryVariable, library);
    add(kProgramVariable, own_program());
    const std::filesystem::path folder = library.parent_path();
    // For compiled programs: the folder of the library in a build or a bundle. The folder of an
    // installed one, "lib", contains other libraries as well and is not added.
    add("LD_LIBRARY_PATH", folder.filename() == "lib" ? "" : path_with("LD_LIBRARY_PATH", folder));
  }
  add("PYTHONPATH", python_path());
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

int run_command(const std::vector<std::string>& command) {
  ::setenv(cloud_hooks::kLauncherPidVariable, std::to_string(::getpid()).c_str(), 1);
  const std::vector<char*> words = exec_pointers(command);
  pid_t child = -1;
  if (const int failure = start_command(words, child); failure != 0) {
    log::error(fmt::format("{}: {}", command.front(), std::strerror(failure)));
    return kExitFailed;
  }
  // Ctrl-C at mpiexec or srun reaches all ranks, and each of them leaves the job.
  const SignalWatcher signals({SIGTERM, SIGUSR1, SIGINT}, [child](int signal) {
    ::kill(child, signal == SIGINT ? SIGTERM : signal);
  });
  const ProcessEnd end = wait_for_end(child);
  return end.signal != 0 ? kExitFailed : end.exit_code;
}

int become_program(const JobConfig& own,
                   const std::vector<std::pair<std::string, std::string>>& given,
                   const std::string& job_file, const std::vector<std::string>& command) {
  ProgramPlace place;
  place.is_launched = own.launched;
  place.number = own.worker_number;
  place.coordinator = own.coordinator;
  place.job_file = job_file;
  place.run_dir = own.run_dir;
  place.token_file = own.token_file;
  place.bind_host = own.bind_host == JobConfig().bind_host ? "" : own.bind_host;
  place.settings = {{"resume", absolute(own.resume)}};
  const std::set<std::string> placed = {"coordinator", "launched",  "worker_number", "run_dir",
                                        "token_file",  "bind_host", "resume"};
  std::ranges::copy_if(given, std::back_inserter(place.settings),
                       [&](const auto& one) { return !placed.contains(one.first); });
  place.folder = text_of(kProgramDirVariable);
  const std::vector<std::string> words = command_at(place, command);
  for (const int signal : kIgnoredByMain) {
    ::signal(signal, SIG_DFL);
  }
  ::execv(words.front().c_str(), exec_pointers(words).data());
  log::error(fmt::format("{}: {}", words.front(), std::strerror(errno)));
  return kExitFailed;
}

}  // namespace mayfly::engine
