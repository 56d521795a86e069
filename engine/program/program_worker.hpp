#pragma once

// A worker inside a program of the user's own (library/mayfly_api, through mayfly.h): it joins the
// job on a thread of its own, trains with what the program computes, and comes back after an
// eviction, as the workers of `mayfly worker` do, unless its state is not the job's: then its part
// is over.
//
// One job per process. All functions are called by one thread of the program, but for leave().

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

/// What a program says of its job.
struct ProgramJob {
  std::string data_name;            ///< for people
  std::uint64_t train_samples = 0;  ///< from one to SampleStream::kSamplesMax
  std::uint64_t test_samples = 0;   ///< 0 = nothing is evaluated
  std::uint32_t test_chunk = 1;     ///< of which are evaluated at once
  std::vector<std::string> sums;    ///< of an evaluation, beside right predictions and losses
  std::uint64_t steps = 0;
  std::uint32_t global_batch = 0;
  std::uint32_t microbatch = 0;
  std::size_t optimizer_bytes_max = 0;                      ///< see ProgramState
  std::vector<std::pair<std::string, std::string>> equals;  ///< must be so on all workers
};

/// See ProgramState::set_optimizer_state().
struct OptimizerState {
  std::vector<ProgramTensor> tensors;
  Bytes blob;
  double learning_rate = 0;
};

/// How the worker's part has ended.
struct ProgramEnd {
  elastic::DismissReason reason = elastic::DismissReason::kJobFailed;
  std::string detail;
};

class ProgramWorker {
 public:
  /// Reads the settings: those of the file kJobFileVariable, or those that the coordinator tells,
  /// and in place of them those of `environment`. kNotFound if no coordinator is named; kRefused
  /// with what the coordinator says, or if its job trains a network of ours; the failure of the
  /// last attempt if none answers.
  [[nodiscard]] static Result<std::unique_ptr<ProgramWorker>> open(
      const std::map<std::string, std::string>& environment);
  /// Once it is_over(), or if it was not started. Waits until the worker's thread has ended.
  ~ProgramWorker();

  [[nodiscard]] const JobConfig& settings() const { return config_; }

  /// Joins the job and begins; `sentinel_program` is started beside it (spawn_sentinel()). Returns
  /// when the coordinator has taken this worker in. kRefused with the coordinator's reason;
  /// kInvalidInput if such a job is impossible.
  [[nodiscard]] Result<void> start(const ProgramJob& job, ProgramTensors tensors,
                                   OptimizerState optimizer, const std::string& sentinel_program);

  /// The next task, for which buffers are set; nothing if there is none within
  /// `patience`.
  [[nodiscard]] std::optional<ProgramTask> next(Duration patience);
  /// next() has returned kEnd.
  [[nodiscard]] bool is_over() const { return is_over_; }
  /// How it has ended, then.
  [[nodiscard]] const ProgramEnd& end() const { return end_; }
  /// After start().
  [[nodiscard]] ProgramState& state() { return *state_; }
  [[nodiscard]] ProgramComputer& computer() { return *computer_; }
  [[nodiscard]] const ProgramFeed& feed() const { return feed_; }

  /// Asks the job for a planned leave, as soon as this worker is a member if it is none now. Any
  /// thread.
  void leave(const std::string& reason);
  /// Asks the coordinator to stop the job, as `mayfly stop` does: all members end after the step at
  /// hand, with a checkpoint. The coordinator's refusal, or the failure to reach it.
  [[nodiscard]] Result<void> stop();
  /// An event on record (events.jsonl), see NoteRecord::kOfProgram. While this worker is no member
  /// it is kept until it is one, if there are not too many.
  void note(const std::string& kind, const std::string& text);
  /// The program cannot go on: its worker is lost to the job now, also if its process lives on. The
  /// first reason goes on record; waits for up to a second until it is.
  void abandon(const std::string& why);

 private:
  /// `is_child`: of our own launcher.
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
  std::optional<std::string> early_reason_;  // before there are signals_; guarded by leave_mutex_
  PeerReach reach_{kWorkerReach};
  UnconfirmedReports unconfirmed_;
  std::mutex client_mutex_;
  elastic::MemberClient* client_ = nullptr;                      // guarded by client_mutex_
  elastic::Sentinel* sentinel_ = nullptr;                        // the same; lives as client_ does
  std::vector<std::pair<std::string, std::string>> kept_notes_;  // the same
  ProgramEnd end_;                                               // before the task kEnd
  bool is_over_ = false;                                         // the program's thread only
  bool is_abandoned_ = false;                                    // the same
  std::thread thread_;
};

}  // namespace mayfly::engine
