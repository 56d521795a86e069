#pragma once

// A worker inside a program of the user's own (library/mayfly_api, through mayfly.h): it joins the
// job on a thread of its own, trains with the program's results, and joins again after an eviction,
// as the workers of `mayfly worker` do. If its state is not one of the job's, it does not join
// again.
//
// One job per process. All functions are called by one thread of the program, except leave().

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "elastic/net/member_client.hpp"
#include "elastic/net/sentinel.hpp"
#include "engine/config/config.hpp"
#include "engine/membership/membership.hpp"
#include "engine/program/mailbox.hpp"
#include "engine/program/program_computer.hpp"
#include "engine/program/program_feed.hpp"
#include "engine/program/program_state.hpp"

namespace mayfly::engine {

/// A program's description of its job.
struct ProgramJob {
  std::string data_name;            ///< for messages
  std::uint64_t train_samples = 0;  ///< from one to SampleStream::kSamplesMax
  std::uint64_t test_samples = 0;   ///< 0 = nothing is evaluated
  std::uint32_t test_chunk = 1;     ///< number of test samples that are evaluated at once
  std::vector<std::string> sums;    ///< names of further sums of an evaluation
  std::uint64_t steps = 0;
  std::uint32_t global_batch = 0;
  std::uint32_t microbatch = 0;
  std::size_t optimizer_bytes_max = 0;                      ///< see ProgramState
  std::vector<std::pair<std::string, std::string>> equals;  ///< (name, value), equal on all workers
};

/// See ProgramState::set_optimizer_state().
struct OptimizerState {
  std::vector<ProgramTensor> tensors;
  Bytes blob;
  double learning_rate = 0;
};

/// Why the worker has left the job.
struct ProgramEnd {
  elastic::DismissReason reason = elastic::DismissReason::kJobFailed;
  std::string detail;
};

class ProgramWorker {
 public:
  /// Reads the settings of the job from the file that kJobFileVariable names or from the
  /// coordinator; those of `environment` override them. kNotFound if no coordinator is named;
  /// kRefused with the coordinator's reason, or if its job trains a built-in network; the failure
  /// of the last attempt if no coordinator answers.
  [[nodiscard]] static Result<std::unique_ptr<ProgramWorker>> open(
      const std::map<std::string, std::string>& environment);
  /// Must be called only after is_over(), or if start() has not succeeded. Waits until the worker's
  /// thread has ended.
  ~ProgramWorker();

  [[nodiscard]] const JobConfig& settings() const { return config_; }

  /// Joins the job and begins to train; `sentinel_program` is started beside this process
  /// (spawn_sentinel()). Returns when the coordinator has admitted this worker. kRefused with the
  /// coordinator's reason; kInvalidInput if such a job is impossible.
  [[nodiscard]] Result<void> start(const ProgramJob& job, ProgramTensors tensors,
                                   OptimizerState optimizer, const std::string& sentinel_program);

  /// The next task, for which the program's buffers have been set; nothing if there is none within
  /// `patience`.
  [[nodiscard]] std::optional<ProgramTask> next(Duration patience);
  /// Whether next() has returned kEnd.
  [[nodiscard]] bool is_over() const { return is_over_; }
  /// To be called after is_over().
  [[nodiscard]] const ProgramEnd& end() const { return end_; }
  /// To be called after start().
  [[nodiscard]] ProgramState& state() { return *state_; }
  [[nodiscard]] ProgramComputer& computer() { return *computer_; }
  [[nodiscard]] const ProgramFeed& feed() const { return feed_; }

  /// Asks the coordinator for a planned leave. If this worker is not a member now, it asks when it
  /// is one. Any thread.
  void leave(const std::string& reason);
  /// Asks the coordinator to stop the job, as `mayfly stop` does: all members end after the present
  /// step, with a checkpoint. Fails with the coordinator's refusal, or if it cannot be reached.
  [[nodiscard]] Result<void> stop();
  /// Records an event in events.jsonl, see NoteRecord::kOfProgram. While this worker is not a
  /// member, a limited number of events is kept until it is one.
  void note(const std::string& kind, const std::string& text);
  /// To be called when the program cannot continue: its worker is lost when the process ends. The
  /// first reason is recorded; waits for up to a second until the coordinator has it.
  void abandon(const std::string& why);

 private:
  /// `is_child`: `mayfly run` has started this process.
  ProgramWorker(JobConfig config, bool is_child)
      : config_(std::move(config)), is_child_(is_child) {}
  [[nodiscard]] Result<void> prepare(const ProgramJob& program, ProgramTensors tensors);
  void run(const std::string& sentinel_program, std::promise<Result<void>> joined);
  [[nodiscard]] Result<std::unique_ptr<elastic::MemberClient>> join(
      elastic::Sentinel* sentinel, std::optional<elastic::Former> former, Duration timeout);
  [[nodiscard]] Result<void> settle_state(const elastic::MemberClient& client, bool joins_again);
  void finish(ProgramEnd end);
  void use(elastic::MemberClient* client, elastic::Sentinel* sentinel);
  [[nodiscard]] bool is_abandoned();
  void send_note(const std::string& kind, const std::string& text);

  JobConfig config_;
  const bool is_child_;
  Bytes token_;
  std::unique_ptr<Job> job_;
  std::unique_ptr<ReductionLayout> layout_;
  ProgramTensors tensors_;
  std::unique_ptr<collectives::Transport> transport_;
  Mailbox mailbox_;
  ProgramFeed feed_;
  std::unique_ptr<ProgramState> state_;
  std::unique_ptr<ProgramComputer> computer_;
  std::mutex leave_mutex_;
  std::unique_ptr<LeaveSignals> signals_;    // made under leave_mutex_
  std::optional<std::string> early_reason_;  // of leave() before signals_; guarded by leave_mutex_
  PeerReach reach_{kWorkerReach};
  UnconfirmedReports unconfirmed_;
  std::mutex client_mutex_;
  elastic::MemberClient* client_ = nullptr;                      // guarded by client_mutex_
  elastic::Sentinel* sentinel_ = nullptr;                        // the same; lives as client_ does
  std::vector<std::pair<std::string, std::string>> kept_notes_;  // the same
  ProgramEnd end_;                                               // set before the task kEnd
  bool is_over_ = false;                                         // the program's thread only
  bool is_abandoned_ = false;                                    // guarded by client_mutex_
  std::thread thread_;
};

}  // namespace mayfly::engine
