#include "engine/launch/rank_marks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/net/addresses.hpp"
#include "base/time.hpp"

namespace mayfly::engine {
namespace {

namespace fs = std::filesystem;

constexpr Duration kSayAfter = seconds(3);
constexpr Duration kGiveUpAfter = seconds(20);
constexpr Duration kMarksInterval = milliseconds(50);

std::string folder_of_marks(const std::string& run_dir) {
  return run_dir + "/ranks";
}

/// Opening a folder makes a network file system ask its server. For a single name it may answer
/// "missing" from its cache for half a minute.
bool is_in(const std::string& folder, const std::string& name) {
  return std::ranges::count(names_in(folder), name) > 0;
}

/// Polls until `is_there` returns true. Logs `text` once while it waits.
template <typename Condition>
bool wait_for(const Condition& is_there, const std::string& text) {
  const Instant begin = monotonic_now();
  bool has_said = false;
  while (!is_there()) {
    const Duration passed = monotonic_now() - begin;
    if (passed >= kGiveUpAfter) {
      return false;
    }
    if (passed >= kSayAfter && !has_said) {
      has_said = true;
      log::warning(
          fmt::format("{}; retrying for {} s", text, (kGiveUpAfter - passed) / seconds(1)));
    }
    std::this_thread::sleep_for(kMarksInterval);
  }
  return true;
}

}  // namespace

std::string text_of_nothing_shared(const std::string& run_dir, const LaunchedBy& self,
                                   const std::string& host_name) {
  const std::string where =
      self.hosts.empty() ? fmt::format("several hosts (rank {} is on {})", self.rank, host_name)
                         : fmt::format("hosts {}", self.hosts);
  const char* channel = self.launcher == Launcher::kSlurm
                            ? "use srun --mpi=pmi2 or --mpi=pmix, which need no shared files"
                        : self.launcher == Launcher::kOpenMpi
                            ? "install PMIx (libpmix.so.2), over which mpirun needs no shared files"
                            : "use MPICH's mpiexec, which needs no shared files";
  return fmt::format(
      "the ranks are on {} and the run directory {} is not on a file system that they share: name "
      "one with --run-dir, or {}, or start `mayfly coordinator` and on each host `mayfly worker "
      "--coordinator HOST:PORT --token-file FILE`",
      where, run_dir, channel);
}

Result<void> wait_for_marks(const std::string& run_dir, const LaunchedBy& self) {
  const std::string text = text_of_nothing_shared(run_dir, self, host_name());
  const std::string folder = folder_of_marks(run_dir);
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) {
    return Error{Errc::kIo, fmt::format("{}: {}", folder, failure.message())};
  }
  for (const std::string& old : names_in(folder)) {  // faster ranks leave theirs again
    fs::remove(fs::path(folder) / old, failure);
  }
  const bool are_all = wait_for([&] { return names_in(folder).size() + 1 >= self.size; }, text);
  const std::string seen = folder + ".seen";  // no rank leaves a mark under this name
  fs::remove_all(seen, failure);
  fs::rename(folder, seen, failure);
  fs::remove_all(failure ? folder : seen, failure);
  return are_all ? Result<void>() : Result<void>(Error{Errc::kInvalidInput, text});
}

Result<void> leave_mark(const std::string& run_dir, const LaunchedBy& self) {
  const std::string text = text_of_nothing_shared(run_dir, self, host_name());
  const std::string mark = fmt::format("{}/{}", folder_of_marks(run_dir), self.rank);
  const fs::path path(run_dir);
  const auto leave = [&] {
    (void)is_in(path.parent_path().empty() ? "." : path.parent_path().string(), "");
    std::error_code failure;
    return is_in(run_dir, "ranks") && (fs::exists(mark, failure) || std::ofstream(mark).good());
  };
  if (!wait_for(leave, text)) {
    return Error{Errc::kInvalidInput, text};
  }
  // Rank 0 removes earlier marks when it starts, and the folder when all marks are in it.
  (void)wait_for([&] { return !leave(); },
                 fmt::format("waiting for the marks of all ranks in {}", folder_of_marks(run_dir)));
  return {};
}

}  // namespace mayfly::engine
