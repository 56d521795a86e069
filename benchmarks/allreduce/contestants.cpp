#include "benchmarks/allreduce/contestants.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "benchmarks/ranks/rank_session.hpp"

namespace mayfly::bench {
namespace {

using Strings = std::vector<std::string>;

/// Open MPI for ranks of one host: research found each of these necessary (docs/benchmarks.md).
Strings mpirun(std::uint32_t ranks, const std::string& transports) {
  return {"mpirun",
          "--oversubscribe",
          "--bind-to",
          "none",
          "--mca",
          "btl",
          transports,
          "--mca",
          "pml",
          "ob1",
          "--mca",
          "btl_tcp_if_include",
          "lo",
          "--mca",
          "oob_tcp_if_include",
          "lo",
          "-np",
          std::to_string(ranks)};
}

bool in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((std::filesystem::path(folder) / program).c_str(), X_OK) == 0) {
      return true;
    }
  }
  return false;
}

bool starts_with_mpi(const std::string& library) {
  return library == "mpi" || library.starts_with("mpi-");
}

Strings launch(const std::string& library, std::uint32_t ranks) {
  if (library == "mpi-tcp") {
    return mpirun(ranks, "tcp,self");
  }
  Strings words = mpirun(ranks, "vader,self");
  if (library == "mpi-copy") {
    words.insert(words.end(), {"--mca", "btl_vader_single_copy_mechanism", "none"});
  }
  return words;
}

Strings peer_program(const std::string& library, const std::string& folder) {
  if (starts_with_mpi(library)) {
    return {folder + "/mayfly-peer-mpi"};
  }
  return {folder + "/mayfly-peer-" + library};
}

}  // namespace

const Strings& bench_backends() {
  static const Strings names = {"tcp", "unix", "gloo", "mpi", "mpi-tcp"};
  return names;
}

const Strings& bench_peers() {
  static const Strings names = {"gloo", "mpi-tcp", "mpi-shm", "mpi-copy", "poll"};
  return names;
}

Result<Contestant> find_contestant(const std::string& library, bool is_peer, std::uint32_t ranks,
                                   const std::string& program) {
  Contestant contestant;
  contestant.name = is_peer ? library : "mayfly-" + library;
  contestant.library = library;
  contestant.is_peer = is_peer;
  contestant.launcher = starts_with_mpi(library);
  Strings rank_command;
  if (is_peer) {
    rank_command = peer_program(library, std::filesystem::path(program).parent_path().string());
    if (::access(rank_command[0].c_str(), X_OK) != 0) {
      return Error{Errc::kUnsupported,
                   library + ": there is no " + rank_command[0] +
                       "; it is built where its library is installed (scripts/packages.txt)"};
    }
  } else {
    rank_command = {program, kRankCommand, contestant.launcher ? "mpi" : library};
  }
  if (contestant.launcher) {
    if (!in_path("mpirun")) {
      return Error{Errc::kUnsupported, library + ": there is no mpirun in PATH (Open MPI)"};
    }
    contestant.command = launch(library, ranks);
    // mpirun refuses to run as root without both.
    contestant.environment = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                              {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
  }
  contestant.command.insert(contestant.command.end(), rank_command.begin(), rank_command.end());
  return contestant;
}

}  // namespace mayfly::bench
