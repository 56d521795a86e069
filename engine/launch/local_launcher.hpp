#pragma once

// `mayfly train` on one machine: an embedded coordinator and child processes as workers. Everything
// here runs on the thread that calls run(): workers are bound to the thread that starts them.

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cloud_hooks/local_provider.hpp"
#include "engine/faults/chaos_plan.hpp"
#include "engine/faults/chaos_player.hpp"
#include "engine/launch/launch.hpp"
#include "engine/processes/coordinator_process.hpp"

namespace mayfly::engine {

class LocalLauncher : private ChaosTargets {
 public:
  /// Called every few milliseconds while the job runs, for benchmarks that drive it.
  using PollHook = std::function<void(LocalLauncher&)>;

  /// Called with the number and the command of each worker before it is started, to change it.
  using StartHook = std::function<Result<void>(std::size_t, std::vector<std::string>&)>;

  LocalLauncher(const JobConfig& config, RunListener& listener, std::vector<ChaosEvent> chaos,
                PollHook on_poll = {});

  /// Before run().
  void on_start(StartHook hook) { on_start_ = std::move(hook); }
  /// Before run(): the executable of workers and parameter servers; by default the one of this
  /// process.
  void use_program(std::string program) { program_ = std::move(program); }
  /// Before run(): the command of a program of the user's own, whose processes are the workers.
  void use_command(std::vector<std::string> command) { command_ = std::move(command); }
  /// Runs the job to its end and returns the exit code.
  int run();

  // For the hook; see ChaosTargets:
  Result<std::size_t> start_worker() override;
  [[nodiscard]] std::vector<std::size_t> running_workers() const override;
  Result<void> signal_worker(std::size_t worker, int signal) override;
  [[nodiscard]] CoordinatorProcess& coordinator() { return *process_; }

 private:
  struct Worker {
    std::string id;  // of the provider
    int pid = 0;     // of the member, which a script may have started; 0 = was no member yet
    bool running = true;
    bool is_server = false;   // a parameter server, whose number is not a worker's
    bool is_leaving = false;  // was a member in the phase "leaving"
    bool leave_requested = false;
    bool is_killed_by_plan = false;  // so it is not replaced
    bool was_member = false;
    bool is_lost = false;       // was a member; its process is ending or will join again
    bool has_refused = false;   // ended because it cannot carry out the settings here
    bool has_failed = false;    // was killed or ended with an error
    bool outlived_job = false;  // a program of the user's own that was a member to the end
    std::string end;            // how it ended

    /// Counts when the job is scaled: it is a member, is about to become one, or was evicted and
    /// joins again.
    [[nodiscard]] bool stays() const {
      return running && !leave_requested && !is_leaving && !is_server;
    }
  };

  [[nodiscard]] bool is_running(std::size_t worker) const override {
    return worker < workers_.size() && workers_[worker].running;
  }
  Result<void> kill_for_good(std::size_t worker) override;
  void note_chaos(const std::string& text) override { process_->note("chaos", text); }

  /// Starts the processes with which the job begins.
  Result<void> start_all();
  Result<void> start_server(std::uint32_t index);
  [[nodiscard]] std::vector<std::string> command_of(const char* what) const;
  [[nodiscard]] std::vector<std::string> command_of_user(std::uint32_t number) const;
  void poll_workers();
  /// Starts another worker in place of one that has just died, as often as --max-restarts allows.
  /// Returns true if it started one.
  bool replace(const Worker& dead);
  void follow_membership(const elastic::JobStatus& status);
  /// Before the first view nothing has been computed yet. If a worker cannot start then (its GPU
  /// has too little memory), the command is refused with the worker's reason, as if this process
  /// had found it. Returns true from then on.
  bool heed_refusals(const elastic::JobStatus& status);
  [[nodiscard]] std::string log_path(std::size_t worker) const;
  /// The last line of a worker's log, for error texts.
  [[nodiscard]] std::string last_line(std::size_t worker) const;
  Result<std::string> scale(std::uint32_t count);
  void follow_scale_requests();
  [[nodiscard]] bool is_anybody_lost() const;
  void follow_signals();
  void wait_for_workers(const JobEnd& end);
  /// Returns false if a program that was a member to the job's end failed after it, and records
  /// that.
  bool have_programs_succeeded();

  JobConfig requested_;
  RunListener& listener_;
  const std::vector<ChaosEvent> plan_;
  ChaosPlayer chaos_;
  PollHook on_poll_;
  StartHook on_start_;
  std::string program_ = "/proc/self/exe";
  std::vector<std::string> command_;     // empty: workers are Mayfly's own
  std::atomic<int> interrupts_ = 0;      // Ctrl-C and SIGTERM so far
  std::atomic<bool> is_warned_ = false;  // by kWarningSignal, which was not followed yet
  std::atomic<int> interrupts_max_ = 2;  // this many end the process at once
  int interrupts_seen_ = 0;
  std::atomic<std::uint32_t> scale_to_ = 0;  // 0 = no request
  std::optional<Instant> scale_waits_since_;
  std::uint32_t restarts_ = 0;
  std::vector<Worker> workers_;         // in the order of starting
  std::optional<std::string> refusal_;  // why no worker will ever compute
  std::string refusal_log_;             // of the worker that reported it
  std::unique_ptr<CoordinatorProcess> process_;
  cloud_hooks::LocalProvider provider_;  // destroyed first: kills processes that still run
};

}  // namespace mayfly::engine
