#pragma once

// What every process that runs a coordinator has in common, embedded or alone: the job, the run
// directory, the token, the server, and the recorder between them.

#include <functional>
#include <memory>
#include <string>

#include "elastic/net/coordinator_server.hpp"
#include "elastic/net/durable_view_log.hpp"
#include "engine/job.hpp"
#include "engine/processes/launch.hpp"
#include "engine/run/run_recorder.hpp"
#include "engine/run/start_files.hpp"

namespace mayfly::engine {

class CoordinatorProcess {
 public:
  /// Sets `workers` (of a running job) to a new number; returns a sentence for the operator.
  using ScaleHandler = std::function<Result<std::string>(std::uint32_t)>;

  /// Whether a run directory whose coordinator died may be taken over; not if its workers ended
  /// with it.
  enum class Unfinished { kRefuse, kGoOn };

  /// Prepares the job, creates the run directory with config.toml, token and the `coordinator` file
  /// (our endpoint), and starts the server. Defaults that depend on the moment or on the machine
  /// (run_dir, threads, token_file, resume) are resolved here. A job that goes on keeps its files,
  /// its token and, if it is free, its port; so does one that has ended and has no summary, of
  /// which only the rest is done. kRefused if another coordinator runs there. Whatever the error,
  /// nothing is left of what was written.
  static Result<std::unique_ptr<CoordinatorProcess>> start(JobConfig config, RunListener& listener,
                                                           Unfinished unfinished,
                                                           ScaleHandler on_scale);

  [[nodiscard]] const JobConfig& config() const { return job_->config; }
  [[nodiscard]] const Job& job() const { return *job_; }
  [[nodiscard]] elastic::CoordinatorServer& server() { return *server_; }
  [[nodiscard]] RunRecorder& recorder() { return *recorder_; }
  /// The one before us ended the job and died before all that follows was done.
  [[nodiscard]] bool only_ends() const { return only_ends_; }
  /// An event of the launcher itself, for events.jsonl and the terminal.
  void note(const std::string& kind, const std::string& detail);

  /// As if it had not been started, for a command that is refused after all.
  static void undo(std::unique_ptr<CoordinatorProcess> process);

  /// Closes the server, writes the summary and returns the exit code.
  int finish(const JobEnd& end);

 private:
  CoordinatorProcess(RunListener& listener, ScaleHandler on_scale)
      : listener_(listener), on_scale_(std::move(on_scale)) {}
  Result<void> open(Unfinished unfinished, const std::string& remark);
  Result<void> open_view_log(Unfinished unfinished);
  Result<void> open_run_directory();
  Result<void> start_server();
  [[nodiscard]] elastic::CoordinatorOptions core_options() const;
  void announce_return();
  // On the server's thread, which may run before server_ is set:
  elastic::CommandReply answer(const elastic::CoordinatorServer& server,
                               const elastic::Command& command);
  [[nodiscard]] std::string status_json(const elastic::CoordinatorServer& server) const;

  RunListener& listener_;
  ScaleHandler on_scale_;
  bool goes_on_ = false;    // with the job that the view log holds
  bool only_ends_ = false;  // and that job has ended
  std::unique_ptr<Job> job_;
  std::unique_ptr<StartFiles> start_files_;
  std::unique_ptr<elastic::DurableViewLog> view_log_;  // until the server has it
  std::unique_ptr<RunDirectory> directory_;
  std::unique_ptr<RunRecorder> recorder_;
  std::unique_ptr<elastic::CoordinatorServer> server_;
};

/// `mayfly coordinator`, with a say in what becomes of an unfinished job.
int run_coordinator(const JobConfig& config, RunListener& listener,
                    CoordinatorProcess::Unfinished unfinished);

/// Fills in what depends on the machine and the moment; see CoordinatorProcess::start.
void resolve_defaults(JobConfig& config);

}  // namespace mayfly::engine
