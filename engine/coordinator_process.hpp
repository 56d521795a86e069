#pragma once

// What every process that runs a coordinator has in common, embedded or alone: the job, the run
// directory, the token, the server, and the recorder between them.

#include <functional>
#include <memory>
#include <string>

#include "elastic/net/coordinator_server.hpp"
#include "engine/job.hpp"
#include "engine/launch.hpp"
#include "engine/run_recorder.hpp"

namespace mayfly::engine {

class CoordinatorProcess {
 public:
  /// Sets `workers` (of a running job) to a new number; returns a sentence for the operator.
  using ScaleHandler = std::function<Result<std::string>(std::uint32_t)>;

  /// Prepares the job, creates the run directory with config.toml, token and the `coordinator` file
  /// (our endpoint), and starts the server. Defaults that depend on the moment or on the machine
  /// (run_dir, threads, token_file, resume) are resolved here.
  static Result<std::unique_ptr<CoordinatorProcess>> start(JobConfig config, RunListener& listener,
                                                           ScaleHandler on_scale);

  [[nodiscard]] const JobConfig& config() const { return job_->config; }
  [[nodiscard]] const Job& job() const { return *job_; }
  [[nodiscard]] elastic::CoordinatorServer& server() { return *server_; }
  [[nodiscard]] RunRecorder& recorder() { return *recorder_; }
  /// An event of the launcher itself, for events.jsonl and the terminal.
  void note(const std::string& kind, const std::string& detail);

  /// Closes the server, writes the summary and returns the exit code.
  int finish(const JobEnd& end);

 private:
  CoordinatorProcess(RunListener& listener, ScaleHandler on_scale)
      : listener_(listener), on_scale_(std::move(on_scale)) {}
  Result<void> open_run_directory();
  Result<void> start_server();
  elastic::CommandReply answer(const elastic::Command& command);
  [[nodiscard]] std::string status_json() const;

  RunListener& listener_;
  ScaleHandler on_scale_;
  std::unique_ptr<Job> job_;
  std::unique_ptr<RunDirectory> directory_;
  std::unique_ptr<RunRecorder> recorder_;
  std::unique_ptr<elastic::CoordinatorServer> server_;
};

/// Fills in what depends on the machine and the moment; see CoordinatorProcess::start.
void resolve_defaults(JobConfig& config);

}  // namespace mayfly::engine
