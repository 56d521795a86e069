#pragma once

// The parts of every process that runs a coordinator, whether or not it also starts workers: the
// job, the run directory, the token, the server, and the recorder between them.

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/lock_file.hpp"
#include "base/replaceable_handler.hpp"
#include "elastic/net/coordinator_server.hpp"
#include "elastic/net/view_log_file.hpp"
#include "engine/job/job.hpp"
#include "engine/run/run_listener.hpp"
#include "engine/run/run_recorder.hpp"
#include "engine/run/start_files.hpp"
#include "engine/transfers/checkpoint_copier.hpp"
#include "engine/transfers/checkpoint_receiver.hpp"
#include "engine/transfers/data_transfer.hpp"
#include "engine/transfers/evaluation_service.hpp"

namespace mayfly::engine {

class CoordinatorProcess {
 public:
  /// Sets `workers` (of a running job) to a new number; returns a sentence for the operator.
  using ScaleHandler = std::function<Result<std::string>(std::uint32_t)>;

  /// Whether a run directory whose coordinator died may be taken over. It must not be if the
  /// workers ended with that coordinator.
  enum class Unfinished { kRefuse, kContinue };

  /// kHere: this host must have the data set and the device. kMayCome: the first worker may send
  /// the facts about them; no worker is admitted before.
  enum class Facts { kHere, kMayCome };

  /// Locks the run directory (unless `lock` does so already) before reading it, prepares the job,
  /// creates the directory's config.toml, token and `coordinator` file (this process's endpoint),
  /// and starts the server. Defaults that depend on the time or on the machine (run_dir, threads,
  /// token_file, resume) are resolved here. A continued job keeps its files, its token and its
  /// port, because its members look for it there; so does a job that has ended without a summary,
  /// which is only completed. Returns null, and sends the listener a line, if nothing is left to
  /// do. kRefused if another coordinator uses the directory; then its files are not changed. After
  /// any other error, such as kIo if the port is in use, all files that were written are removed.
  static Result<std::unique_ptr<CoordinatorProcess>> start(JobConfig config, RunListener& listener,
                                                           Unfinished unfinished,
                                                           ScaleHandler on_scale,
                                                           std::optional<LockFile> lock = {},
                                                           Facts facts = Facts::kHere);

  [[nodiscard]] const JobConfig& config() const { return job_->config; }
  [[nodiscard]] const Job& job() const { return *job_; }
  [[nodiscard]] elastic::CoordinatorServer& server() { return *server_; }
  [[nodiscard]] RunRecorder& recorder() { return *recorder_; }
  /// The evaluators that are connected to this coordinator.
  [[nodiscard]] EvaluationService& evaluations() { return *evaluations_; }
  /// Whether a checkpoint is being received.
  [[nodiscard]] bool is_receiving() const { return receiver_ != nullptr && receiver_->is_busy(); }
  /// Whether an earlier coordinator ended the job and died before it had dismissed all members,
  /// released servers and written the summary. This one only completes these tasks.
  [[nodiscard]] bool only_ends() const { return only_ends_; }
  /// Whether this process continues the job of an earlier coordinator in the same run directory.
  [[nodiscard]] bool continues_job() const { return continues_; }
  ~CoordinatorProcess() { end_transfers(); }
  CoordinatorProcess(const CoordinatorProcess&) = delete;
  CoordinatorProcess& operator=(const CoordinatorProcess&) = delete;

  /// An event of the launcher itself, for events.jsonl and the terminal.
  void note(const std::string& kind, const std::string& detail) { recorder_->note(kind, detail); }
  /// Sets a sentence about the benefit of other servers, which `mayfly status` shows from now on.
  /// Any thread.
  void propose(const std::string& sentence);

  /// Sets the function that makes additional settings, as TOML, for a machine that asks for the
  /// job's settings; it is called on any thread. Null: there are none. Returns when the earlier
  /// function is not called any more.
  void set_machine_settings(std::function<std::string(const std::string& machine)> toml_of);
  /// Sets the function that carries out the command give-up with its number of servers. Null: the
  /// command is refused. Any thread.
  void give_up_with(ScaleHandler give_up);

  /// Removes everything that start() has made, for a command that is refused later.
  static void undo(std::unique_ptr<CoordinatorProcess> process);
  /// To be called when the command cannot be refused any more: undo() cannot be used afterwards.
  void keep() { start_files_.reset(); }

  /// Closes the server, writes the summary and returns the exit code. A job whose last state or
  /// summary could not be written has failed.
  int finish(JobEnd end);

 private:
  CoordinatorProcess(RunListener& listener, ScaleHandler on_scale, LockFile lock, Facts facts)
      : lock_(std::move(lock)),
        listener_(listener),
        on_scale_(std::move(on_scale)),
        facts_(facts) {}
  Result<void> open(JobConfig config, Unfinished unfinished);
  Result<void> open_view_log(const std::string& run_dir, Unfinished unfinished);
  Result<void> prepare(JobConfig config);
  Result<void> prepare_without_data(const JobConfig& config, const Error& lack);
  Result<void> take_facts(const JobFacts& facts);
  [[nodiscard]] Result<void> keep_facts(const JobFacts& facts) const;
  Result<void> open_run_directory();
  Result<void> start_server();
  void announce_return();
  Result<void> check_copies() const;
  void begin_copies();
  void finish_copies(JobEnd& end, bool has_result);
  [[nodiscard]] std::optional<Step> newest_received() const;
  void begin_transfers(std::optional<Step> newest);
  void end_transfers();
  [[nodiscard]] std::optional<Step> step_without_holder() const;
  [[nodiscard]] std::optional<Step> step_of_holders() const;
  // On the server's thread, which may run before server_ is set:
  elastic::CommandReply answer(const elastic::CoordinatorServer& server,
                               const elastic::Command& command);
  [[nodiscard]] Result<std::string> give_up(std::uint32_t count);
  [[nodiscard]] std::string status_json(const elastic::CoordinatorServer& server) const;

  LockFile lock_;  // of the run directory; released last
  RunListener& listener_;
  ScaleHandler on_scale_;
  const Facts facts_;
  bool is_standby_ = false;
  bool lacks_facts_ = false;  // until a worker sends them
  bool continues_ = false;    // see continues_job()
  bool only_ends_ = false;    // see only_ends()
  std::unique_ptr<Job> job_;
  std::string start_remark_;         // for the user, about the state from which the job starts
  StartingPoint starting_point_;     // of a job that is resumed from a checkpoint
  std::string skipped_checkpoints_;  // for the user, about newer ones that are damaged
  std::unique_ptr<StartFiles> start_files_;
  std::unique_ptr<elastic::DurableViewLog> view_log_;  // until it is moved to the server
  std::unique_ptr<RunDirectory> directory_;
  // Used by the threads of server_ and receiver_, so they outlive both:
  mutable std::mutex proposal_mutex_;
  std::string proposal_;  // guarded by proposal_mutex_; empty = none
  ReplaceableHandler<Result<std::string>(std::uint32_t)> give_up_servers_;
  ReplaceableHandler<void(UniqueFd, std::string)> take_transfer_;  // set while there is a receiver_
  ReplaceableHandler<std::string(const std::string& machine)> machine_toml_;
  std::unique_ptr<RunRecorder> recorder_;
  std::unique_ptr<EvaluationService> evaluations_;  // the server's thread reads it for `status`
  std::unique_ptr<elastic::CoordinatorServer> server_;
  std::unique_ptr<CheckpointCopier> copier_;  // null without --checkpoint-to
  std::unique_ptr<DataSender> data_sender_;
  std::unique_ptr<CheckpointReceiver> receiver_;  // uses server_; null as long as that is null
};

/// Whether nothing is left to do for a job that is resumed from a checkpoint of this step. A run
/// that died between its last checkpoint and its summary still has to write the summary.
[[nodiscard]] bool is_nothing_left(const Job& job, std::uint64_t step);

}  // namespace mayfly::engine
