// `mayfly train` under mpirun: MPI is only the launcher. Rank 0 starts a coordinator process beside
// itself, under a keeper that starts it again if it is killed; everybody (rank 0 included) becomes
// a worker of the elastic job. No process is special: the coordinator outlives the worker that
// started it.

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "base/file.hpp"
#include "base/log.hpp"
#include "elastic/net/sentinel.hpp"
#include "engine/config/device_choice.hpp"
#include "engine/parameter_server/ps_settings.hpp"
#include "engine/processes/backend.hpp"
#include "engine/processes/coordinator_process.hpp"
#include "engine/processes/exit_codes.hpp"
#include "engine/processes/launch.hpp"
#include "engine/processes/network_interface.hpp"
#include "engine/run/checkpoint_store.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kCoordinatorTimeout = seconds(60);
constexpr std::size_t kEndpointBytesMax = 512;

std::uint32_t number_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

/// Unique per mpirun and equal on all its ranks.
std::string job_name() {
  const char* name = std::getenv("PMIX_NAMESPACE");
  if (name == nullptr) {
    name = std::getenv("OMPI_MCA_ess_base_jobid");
  }
  return name == nullptr ? "unnamed" : name;
}

/// The numeric address under which the other machines of the job reach this one.
Result<std::string> own_address() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  char numeric[NI_MAXHOST] = {};
  const int failure = ::getaddrinfo(host, nullptr, &hints, &found);
  if (failure == 0) {
    ::getnameinfo(found->ai_addr, found->ai_addrlen, numeric, sizeof numeric, nullptr, 0,
                  NI_NUMERICHOST);
    ::freeaddrinfo(found);
  }
  if (numeric[0] == '\0') {
    return Error{
        Errc::kNotFound,
        fmt::format("this machine's name {} has no address; give one with --bind-host", host)};
  }
  return std::string(numeric);
}

/// What this rank would hear of the coordinator if there were one.
bool has_nothing_left(const JobConfig& config) {
  if (config.resume.empty()) {
    return false;
  }
  const Result<LoadedCheckpoint> loaded = load_checkpoint(config.resume);
  const Result<std::unique_ptr<Job>> job = prepare_job(config);
  return loaded.ok() && job.ok() &&
         is_nothing_left(*job.value(), value(loaded.value().info.committed));
}

/// Of a child, if it has ended.
std::optional<int> exit_code_of_ended(pid_t child) {
  int status = 0;
  if (child <= 0 || ::waitpid(child, &status, WNOHANG) != child) {
    return std::nullopt;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : kExitFailed;
}

/// An exit code if the coordinator has ended instead; `coordinator` is 0 on ranks that start none.
Result<std::variant<std::string, int>> wait_for_endpoint(const std::string& run_dir,
                                                         pid_t coordinator) {
  const Instant deadline = monotonic_now() + kCoordinatorTimeout;
  while (monotonic_now() < deadline) {
    if (const std::optional<int> code = exit_code_of_ended(coordinator)) {
      return std::variant<std::string, int>(*code);
    }
    const Result<std::string> text = read_text_file(run_dir + "/coordinator", kEndpointBytesMax);
    if (text.ok() && !text.value().empty()) {
      return std::variant<std::string, int>(text.value().substr(0, text.value().find('\n')));
    }
    std::this_thread::sleep_for(milliseconds(20));
  }
  return Error{
      Errc::kDeadline,
      fmt::format("no coordinator appeared in {}/coordinator; the run directory must be on "
                  "a file system that all ranks share",
                  run_dir)};
}

/// A coordinator that is killed is started again and goes on from its log. Its keeper has no
/// threads and no memory to speak of; signals are the coordinator's to answer. It holds the run
/// directory's lock while there is no coordinator.
int keep_coordinator(const JobConfig& config, RunListener& listener, LockFile lock) {
  constexpr int kRestartsMax = 10;
  for (int restarts = 0;; ++restarts) {
    const pid_t coordinator = ::fork();
    if (coordinator == 0) {
      return run_coordinator(config, listener,
                             restarts == 0 ? CoordinatorProcess::Unfinished::kRefuse
                                           : CoordinatorProcess::Unfinished::kGoOn,
                             std::move(lock));
    }
    for (const int ignored : {SIGINT, SIGTERM, SIGHUP}) {
      ::signal(ignored, SIG_IGN);
    }
    int status = 0;
    while (coordinator > 0 && ::waitpid(coordinator, &status, 0) < 0 && errno == EINTR) {
    }
    if (coordinator < 0 || WIFEXITED(status) || restarts == kRestartsMax) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : kExitFailed;
    }
    listener.on_event(
        fmt::format("the coordinator was ended by signal {}; starting it again", WTERMSIG(status)));
    for (const int restored : {SIGINT, SIGTERM, SIGHUP}) {
      ::signal(restored, SIG_DFL);
    }
  }
}

/// A lost rank is replaced only if mpirun does not end the others with it.
Result<void> check_recovery(const JobConfig& config) {
  if (config.spares > 0 && number_of("OMPI_MCA_orte_enable_recovery") == 0) {
    return Error{Errc::kInvalidInput,
                 "spares are of no use without mpirun --enable-recovery: the loss of one rank ends "
                 "all others"};
  }
  return {};
}

}  // namespace

bool inside_mpirun() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
}

int run_launched_rank(const JobConfig& requested, RunListener& listener,
                      std::unique_ptr<elastic::Sentinel> sentinel) {
  JobConfig config = requested;
  config.workers = number_of("OMPI_COMM_WORLD_SIZE");
  config.worker_number = number_of("OMPI_COMM_WORLD_RANK");
  if (config.run_dir.empty()) {
    config.run_dir = fmt::format("runs/{}-mpi-{}", config.model, job_name());
  }
  const std::uint32_t local = std::max(1U, number_of("OMPI_COMM_WORLD_LOCAL_SIZE"));
  if (config.threads == 0) {
    config.threads =
        uses_cuda(config.device) ? 1 : std::max(1U, std::thread::hardware_concurrency() / local);
  }
  if (local < config.workers && config.bind_host == JobConfig{}.bind_host) {
    Result<std::string> address = own_address();
    if (!address.ok()) {
      return refuse(address.error(), kExitUsage);
    }
    config.bind_host = address.value();
  }
  for (const Result<void>& checked :
       {check_spares(config), check_servers(config), check_recovery(config), check_backend(config),
        check_reachable_host(config.bind_host)}) {
    if (!checked.ok()) {
      return refuse(checked.error(), kExitUsage);
    }
  }
  pid_t coordinator = 0;
  if (number_of("OMPI_COMM_WORLD_RANK") == 0) {
    Result<LockFile> lock = lock_run_directory(config);
    if (!lock.ok()) {
      return refuse(lock.error(), kExitUsage);
    }
    if (std::filesystem::exists(config.run_dir + "/events.jsonl") && config.resume.empty()) {
      std::move(lock).value().discard();
      return refuse({Errc::kInvalidInput, fmt::format("{} already holds a run; choose another "
                                                      "--run-dir",
                                                      config.run_dir)},
                    kExitUsage);
    }
    coordinator = ::fork();
    if (coordinator == 0) {
      sentinel.release();  // our parent's; its destructor would speak for the parent
      ::_exit(keep_coordinator(config, listener, std::move(lock).value()));
    }
  } else if (has_nothing_left(config)) {
    return kExitDone;
  }
  const Result<std::variant<std::string, int>> endpoint =
      wait_for_endpoint(config.run_dir, coordinator);
  if (!endpoint.ok()) {
    return refuse(endpoint.error(), kExitFailed);
  }
  if (const int* code = std::get_if<int>(&endpoint.value())) {
    return *code;
  }
  config.coordinator = std::get<std::string>(endpoint.value());
  config.token_file = config.run_dir + "/token";
  return run_worker(config, std::move(sentinel));
}

}  // namespace mayfly::engine
