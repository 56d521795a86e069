#include "cloud_hooks/ssh/ssh_provider.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <thread>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/process/program.hpp"
#include "base/system_random.hpp"
#include "base/text.hpp"
#include "base/try_assign.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr Duration kScriptTimeout = seconds(30);  // a script waits up to 20 s for a lock
constexpr Duration kCopyTimeout = seconds(600);   // the program over a slow line, or to a slow disk
/// Longer than the interruption of a connection that breaks and is made again, but short enough for
/// a waiting user.
constexpr Duration kLostAfter = seconds(20);
/// A server that ended by itself this soon would probably do so again, so no other is started on
/// the host for this time, which doubles with each such failure.
constexpr Duration kSoon = seconds(60);
constexpr Duration kRestMax = seconds(300);
constexpr std::size_t kHostsAtOnce = 16;      // connections, each with a process
constexpr std::size_t kCopiesAtOnce = 4;      // each copy is in memory while it is sent
constexpr std::uint64_t kUnpackedFactor = 4;  // of the archive's size, for the check of free space
constexpr int kSshFailed = 255;               // ssh's own exit code; others are the script's

std::string own_system() {
  utsname name{};
  return ::uname(&name) == 0 ? fmt::format("{}/{}", name.sysname, name.machine) : "";
}

/// Calls do(i) for i below `count`, on at most `at_once` threads.
void for_each(std::size_t count, std::size_t at_once,
              const std::function<void(std::size_t)>& call) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < std::min(count, at_once); ++i) {
    threads.emplace_back([&] {
      for (std::size_t mine = next++; mine < count; mine = next++) {
        call(mine);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace

class SshMemory {
 public:
  struct HostState {
    std::optional<Instant> answered;
    std::vector<ServerStatus> servers;  // those in its last answer, and those started since
    std::map<std::string, Instant> started;
    int failures = 0;  // in a row
    Instant rests_until{};
    std::string why;
  };

  std::mutex mutex;
  std::map<std::string, HostState> hosts;  // guarded by mutex
};

std::shared_ptr<SshMemory> make_ssh_memory() {
  return std::make_shared<SshMemory>();
}

namespace {

class SshProviderImpl final : public SshProvider {
 public:
  SshProviderImpl(SshProviderOptions options, std::shared_ptr<SshMemory> memory)
      : options_(std::move(options)), memory_(std::move(memory)) {}

  /// The hosts are queried first, because an earlier answer to this request may have been lost, and
  /// servers may have ended since. If a host cannot take the server, the next one is tried; the
  /// error has the reasons of all.
  RequestOutcome request(const ServerRequest& request) override {
    RequestOutcome outcome;
    const std::vector<Seen> seen = look_at_all();
    for (const Seen& host : seen) {
      if (host.report) {
        for (const ServerStatus& server : host.report->servers) {
          if (server.request_id == request.request_id) {  // an answer was lost
            outcome.servers.push_back(server);
            return outcome;
          }
        }
      }
    }
    std::map<std::size_t, std::string> lacks;
    for (const std::size_t index : by_room(seen, request.request_id)) {
      const ssh::Host& host = options_.hosts[index];
      std::string lack = lack_of(host, seen[index]);
      if (lack.empty() && !seen[index].report->has_program) {
        const Finding installed = install_on(host);
        lack = installed.ok ? "" : installed.text;
      }
      if (lack.empty()) {
        const std::string id = ssh::server_id(host.name, request.request_id);
        const Result<std::string> output = run(
            host,
            ssh::start_script(options_.places, host, id, request.request_id, request.startup_text));
        const ssh::Outcome started = ssh::parse_outcome(output.ok() ? output.value() : "");
        if (started.word == "done") {
          outcome.servers.push_back(server_on(id, request));
          remember_start(host, outcome.servers.back());
          return outcome;
        }
        if (started.word.empty()) {  // no answer: the server may have started
          outcome.error =
              ProviderError{ProviderErrorKind::kRate,
                            host.name + ": " + (output.ok() ? "no answer" : output.error().detail)};
          return outcome;
        }
        lack = started.word == "full" ? "has no room" : started.detail;
      }
      lacks[index] = host.name + ": " + lack;
    }
    std::string detail;
    for (const auto& [index, lack] : lacks) {
      detail += (detail.empty() ? "" : "; ") + lack;
    }
    outcome.error = ProviderError{ProviderErrorKind::kCapacity, detail};
    return outcome;
  }

  /// A server on a host that is lost counts as released: its worker ends by itself when it finds no
  /// coordinator.
  std::optional<ProviderError> release(const std::string& id) override {
    const std::string name = ssh::host_of(id);
    const auto host = std::find_if(options_.hosts.begin(), options_.hosts.end(),
                                   [&](const ssh::Host& one) { return one.name == name; });
    if (host == options_.hosts.end()) {
      return std::nullopt;
    }
    const Result<std::string> output = run(*host, ssh::release_script(options_.places, id));
    const ssh::Outcome released = ssh::parse_outcome(output.ok() ? output.value() : "");
    if (released.word == "done") {
      keep_log(id, ssh::log_in(output.value()));
      forget(name, id);
      return std::nullopt;
    }
    if (released.word.empty() && is_lost(name)) {
      forget(name, id);
      return std::nullopt;
    }
    const std::string why = output.ok() ? released.detail : output.error().detail;
    return ProviderError{ProviderErrorKind::kRate, name + ": " + (why.empty() ? "no answer" : why)};
  }

  Answer<ServerStatus> status(const std::string& id) override {
    Answer<std::vector<ServerStatus>> listed = list();
    return status_in(std::move(listed).value(), id);
  }

  /// The servers of a host that does not answer stay in the list for kLostAfter: a broken
  /// connection does not end them, and replacements would compete with them when the host answers
  /// again.
  Answer<std::vector<ServerStatus>> list() override {
    std::vector<ServerStatus> servers;
    const std::vector<Seen> seen = look_at_all();
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const std::string& name = options_.hosts[i].name;
      if (!seen[i].report) {
        for (ServerStatus& server : servers_before(name)) {
          server.detail = seen[i].lack;
          server.is_remembered = true;
          servers.push_back(std::move(server));
        }
        continue;
      }
      for (ServerStatus server : seen[i].report->servers) {
        if (server.state == ServerState::kGone && !options_.log_dir.empty()) {
          const bool has_host_ended = seen[i].report->ended_with_host.contains(server.id);
          server.failed = !has_host_ended && note_end(name, server);
          server.detail +=
              fmt::format("{}(log: {})", server.detail.empty() ? "" : " ", log_path(server.id));
          (void)release(server.id);  // copies its log to this host
        }
        servers.push_back(std::move(server));
      }
    }
    return servers;
  }

  Capabilities capabilities() const override {
    Capabilities can;
    can.survives_us = true;
    return can;
  }

  std::string preview(const ServerRequest& request) const override {
    std::string names;
    for (const ssh::Host& host : options_.hosts) {
      names += (names.empty() ? "" : ", ") + host.name +
               (host.slots > 1 ? fmt::format(" ({} slots)", host.slots) : "");
    }
    return fmt::format("on one of {}, by {}:\n{}", names, shell_line(options_.words),
                       request.startup_text);
  }

  std::vector<Finding> examine() override {
    const std::vector<Seen> seen = look_at_all();
    std::vector<Finding> findings;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const std::string lack = fault_of(seen[i]);
      findings.push_back({lack.empty(), options_.hosts[i].name + ": " +
                                            (lack.empty() ? describe(seen[i]) : lack)});
    }
    return findings;
  }

  std::vector<Finding> install() override {
    const std::vector<Seen> seen = look_at_all();
    std::vector<Finding> findings(seen.size());
    for_each(seen.size(), kCopiesAtOnce, [&](std::size_t i) {
      const ssh::Host& host = options_.hosts[i];
      const std::string lack = fault_of(seen[i]);
      findings[i] = !lack.empty()                 ? Finding{false, lack}
                    : seen[i].report->has_program ? Finding{true, "has the program"}
                                                  : install_on(host);
      findings[i].text = host.name + ": " + findings[i].text;
    });
    return findings;
  }

 private:
  struct Seen {
    std::optional<ssh::HostReport> report;
    std::string lack;  // the reason if there is no report
  };

  [[nodiscard]] Result<std::string> run_words(const ssh::Host& host, const std::string& command,
                                              std::string input, Duration timeout) const {
    ProgramCall call;
    call.argv = options_.words;
    call.argv.push_back(host.name);
    call.argv.push_back(command);
    call.input = std::move(input);
    call.timeout = timeout;
    TRY_ASSIGN(ProgramResult result, run_program(call));
    if (result.succeeded()) {
      return std::move(result.output);
    }
    const bool is_connection =
        result.end == ProgramResult::End::kExited && result.code == kSshFailed;
    const std::string said = last_line(result.errors);
    return Error{Errc::kPeerLost, is_connection && !said.empty() ? said : result.summary()};
  }

  /// The script is the shell's input, not an argument: it may be long, and contains the job's
  /// token, which arguments would show to every user of both machines.
  [[nodiscard]] Result<std::string> run(const ssh::Host& host, std::string script,
                                        Duration timeout = kScriptTimeout) const {
    return run_words(host, "sh -s", std::move(script), timeout);
  }

  Seen look_at(const ssh::Host& host) {
    Seen seen;
    const Instant began = monotonic_now();
    const Result<std::string> output = run(host, ssh::look_script(options_.places));
    if (!output.ok()) {
      seen.lack = output.error().detail;
      return seen;
    }
    seen.report = ssh::parse_report(output.value());
    if (!seen.report) {
      seen.lack = "gave no valid report: " + last_line(output.value());
      return seen;
    }
    const std::lock_guard lock(memory_->mutex);
    SshMemory::HostState& state = memory_->hosts[host.name];
    state.answered = monotonic_now();
    const std::vector<ServerStatus> before = std::exchange(state.servers, seen.report->servers);
    for (const ServerStatus& server : before) {  // the answer may be older than these
      const auto started = state.started.find(server.id);
      if (started != state.started.end() && started->second > began && !has(state, server.id)) {
        state.servers.push_back(server);
      }
    }
    return seen;
  }

  std::vector<Seen> look_at_all() {
    std::vector<Seen> seen(options_.hosts.size());
    for_each(seen.size(), kHostsAtOnce,
             [&](std::size_t i) { seen[i] = look_at(options_.hosts[i]); });
    return seen;
  }

  /// The reason why no server can be started on the host; empty if one can.
  [[nodiscard]] std::string fault_of(const Seen& seen) const {
    if (!seen.report) {
      return seen.lack;
    }
    const ssh::HostReport& report = *seen.report;
    if (!report.missing.empty()) {
      return "lacks the programs " + report.missing;
    }
    if (!options_.places.program.empty()) {
      return report.has_program ? "" : "there is no program " + options_.places.program;
    }
    if (report.system != own_system()) {
      return fmt::format(
          "is a {}, and this program is for {}; name a program on that host with "
          "--remote-program",
          report.system, own_system());
    }
    std::error_code failure;
    const std::uint64_t bytes = std::filesystem::file_size(options_.bundle, failure);
    const std::uint64_t needed = ((failure ? 0 : bytes) * kUnpackedFactor >> 20) + 1;
    if (!report.has_program && report.free_mib < needed) {
      return fmt::format("{} MiB are free in {}, and the program needs {}; see --remote-dir",
                         report.free_mib, options_.places.folder, needed);
    }
    return {};
  }

  /// The reason why the host is not used now; empty if it is.
  [[nodiscard]] std::string lack_of(const ssh::Host& host, const Seen& seen) const {
    std::string fault = fault_of(seen);
    if (!fault.empty()) {
      return fault;
    }
    if (taken(seen) >= host.slots) {
      return "has no room";
    }
    const std::lock_guard lock(memory_->mutex);
    const SshMemory::HostState& state = memory_->hosts[host.name];
    return monotonic_now() < state.rests_until ? "its last worker ended at once: " + state.why : "";
  }

  static std::size_t taken(const Seen& seen) {
    return static_cast<std::size_t>(
        std::count_if(seen.report->servers.begin(), seen.report->servers.end(),
                      [](const ServerStatus& server) { return server.alive(); }));
  }

  /// The hosts, ordered by the share of their slots in use. Simultaneous requests begin with
  /// different ones of equal hosts.
  [[nodiscard]] std::vector<std::size_t> by_room(const std::vector<Seen>& seen,
                                                 const std::string& request_id) const {
    const std::size_t first = std::hash<std::string>()(request_id) % seen.size();
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      order.push_back((first + i) % seen.size());
    }
    const auto load = [&](std::size_t i) {
      return seen[i].report ? static_cast<double>(taken(seen[i])) / options_.hosts[i].slots : 1.0;
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return load(a) < load(b); });
    return order;
  }

  [[nodiscard]] std::string describe(const Seen& seen) const {
    return fmt::format("{}, {} MiB free, {} of this job's workers, {}", seen.report->system,
                       seen.report->free_mib, taken(seen),
                       seen.report->has_program ? "has the program" : "the program will be copied");
  }

  /// Several threads of this process, and coordinators on several hosts, may copy to one host at a
  /// time. So each copy has a name of its own, and the script moves it to its final name by one
  /// rename.
  Finding install_on(const ssh::Host& host) const {
    constexpr std::size_t kBytesMax = std::size_t{4} << 30;
    Result<std::string> packed = read_text_file(options_.bundle, kBytesMax);
    if (!packed.ok()) {
      return {false, options_.bundle.empty()
                         ? "lacks the program, for which there is no archive here"
                         : packed.error().detail};
    }
    const Result<std::string> made = run(host, ssh::make_folder_script(options_.places));
    const ssh::Outcome folder = ssh::parse_outcome(made.ok() ? made.value() : "");
    if (folder.word != "done") {
      return {false, made.ok() ? folder.detail : made.error().detail};
    }
    const std::string name = fmt::format("copy-{:016x}", system_random());
    const std::string path = shell_quoted(options_.places.folder + "/" + name);
    const std::string take = fmt::format("cat > {0} || {{ rm -f {0}; exit 1; }}", path);
    const Result<std::string> copied =  // run by sh, not by the user's shell
        run_words(host, "sh -c " + shell_quoted(take), std::move(packed).value(), kCopyTimeout);
    if (!copied.ok()) {
      return {false, "the program cannot be copied: " + copied.error().detail};
    }
    const Result<std::string> output =
        run(host, ssh::install_script(options_.places, name), kCopyTimeout);
    const ssh::Outcome installed = ssh::parse_outcome(output.ok() ? output.value() : "");
    if (installed.word != "done") {
      return {false, output.ok() ? installed.detail : output.error().detail};
    }
    return {true, "has received the program"};
  }

  static ServerStatus server_on(const std::string& id, const ServerRequest& request) {
    ServerStatus server;
    server.id = id;
    server.state = ServerState::kRunning;
    server.request_id = request.request_id;
    server.offer = request.offer;
    return server;
  }

  /// A server was started: it counts as running until a report that was begun later shows the
  /// opposite.
  void remember_start(const ssh::Host& host, const ServerStatus& server) {
    const std::lock_guard lock(memory_->mutex);
    SshMemory::HostState& state = memory_->hosts[host.name];
    state.answered = state.started[server.id] = monotonic_now();
    if (!has(state, server.id)) {
      state.servers.push_back(server);
    }
  }

  static bool has(const SshMemory::HostState& state, const std::string& id) {
    return std::any_of(state.servers.begin(), state.servers.end(),
                       [&](const ServerStatus& server) { return server.id == id; });
  }

  /// The server ended by itself. True if that was soon after its start.
  bool note_end(const std::string& host, const ServerStatus& server) {
    const std::lock_guard lock(memory_->mutex);
    SshMemory::HostState& state = memory_->hosts[host];
    const auto started = state.started.find(server.id);
    const Instant now = monotonic_now();
    const bool was_soon = started != state.started.end() && now - started->second < kSoon;
    state.failures = was_soon ? state.failures + 1 : 0;
    if (was_soon) {
      state.rests_until =
          now + std::min<Duration>(kRestMax, seconds(5) * (1 << std::min(state.failures - 1, 6)));
      state.why = server.detail;
    }
    return was_soon;
  }

  void forget(const std::string& host, const std::string& id) {
    const std::lock_guard lock(memory_->mutex);
    SshMemory::HostState& state = memory_->hosts[host];
    state.started.erase(id);
    std::erase_if(state.servers, [&](const ServerStatus& server) { return server.id == id; });
  }

  [[nodiscard]] bool is_lost(const std::string& host) const {
    const std::lock_guard lock(memory_->mutex);
    const SshMemory::HostState& state = memory_->hosts[host];
    return state.answered && monotonic_now() - *state.answered > kLostAfter;
  }

  /// The servers that a host which does not answer had before; none once it counts as lost.
  [[nodiscard]] std::vector<ServerStatus> servers_before(const std::string& host) const {
    if (is_lost(host)) {
      return {};
    }
    const std::lock_guard lock(memory_->mutex);
    std::vector<ServerStatus> alive = memory_->hosts[host].servers;
    std::erase_if(alive, [](const ServerStatus& server) { return !server.alive(); });
    return alive;
  }

  [[nodiscard]] std::string log_path(const std::string& id) const {
    return options_.log_dir + "/" + id + ".log";
  }

  void keep_log(const std::string& id, const std::string& text) const {
    if (options_.log_dir.empty() || text.empty()) {
      return;
    }
    if (Result<void> written = write_file_atomic(log_path(id), text); !written.ok()) {
      log::warning("a worker's log is not kept: " + written.error().detail);
    }
  }

  const SshProviderOptions options_;
  const std::shared_ptr<SshMemory> memory_;
};

}  // namespace

std::unique_ptr<SshProvider> make_ssh_provider(SshProviderOptions options,
                                               std::shared_ptr<SshMemory> memory) {
  return std::make_unique<SshProviderImpl>(std::move(options), std::move(memory));
}

}  // namespace mayfly::cloud_hooks
