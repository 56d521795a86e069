#pragma once

// Evaluators are processes that measure the test accuracy of a run's checkpoints while the job
// trains. Their results are lines of RUN/evaluations.jsonl (engine/run/evaluations.hpp). An
// evaluator that shares the run directory reads it itself (cli/evaluate.cpp). One on another
// machine has a connection to the coordinator, opened like those of checkpoint_transfer.hpp with a
// request of kind kEvaluate:
//
// - The coordinator sends a TransferAnswer: kNothing (no new checkpoint now), kTransfer (a
//   checkpoint, whose files follow), or kRefused (the evaluator is not needed any more); before
//   that empty frames, every few seconds, while it reads the checkpoint.
// - The evaluator answers the first two with frames: empty ones, every few seconds, while it
//   computes, and then one with an Evaluation, whose step is 0 after kNothing.
//
// So each side notices within kTransferIdleMax that the other one is lost. A lost evaluator's
// checkpoint is assigned to another one. Training is not affected.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "engine/run/evaluations.hpp"
#include "engine/run/line_file.hpp"
#include "nn/checkpoint.hpp"

namespace mayfly::engine {

[[nodiscard]] Bytes encode(const Evaluation& evaluation);
[[nodiscard]] Result<Evaluation> decode_evaluation(ByteSpan bytes);

/// An evaluator that is connected to this coordinator.
struct EvaluatorStatus {
  std::uint64_t number = 0;  ///< of its connection; never used again by this process
  std::string server;        ///< the provider's name for its machine; may be empty
  std::string host;
  std::optional<std::uint64_t> measures;  ///< step of the checkpoint that it measures now
  std::uint64_t measured = 0;             ///< checkpoints so far

  /// The fields that `mayfly status --json` shows; see engine/run/records.hpp.
  static void fields(auto& io, auto& r) {
    io("server", r.server);
    io("host", r.host);
    io("measures", r.measures);
    io("measured", r.measured);
  }
};

/// The lines of events.jsonl about an evaluator that has connected, and one that has left. `why` is
/// empty if the coordinator has dismissed it.
[[nodiscard]] Fact fact_of_joined(const EvaluatorStatus& evaluator);
[[nodiscard]] Fact fact_of_left(const EvaluatorStatus& evaluator, const std::string& why);

/// The coordinator's side, with a thread for each evaluator. Any thread may call it.
class EvaluationService {
 public:
  /// Called on the threads of the connections.
  struct Hooks {
    std::function<bool()> is_in_charge;  ///< if false, this coordinator dismisses its evaluators
    std::function<void(const EvaluatorStatus&)> on_joined;
    std::function<void(const EvaluatorStatus&, const std::string& why)> on_left;
    std::function<void(const Evaluation&)> on_measured;
  };

  EvaluationService(std::string run_dir, Hooks hooks);
  ~EvaluationService() { close(); }
  EvaluationService(const EvaluationService&) = delete;
  EvaluationService& operator=(const EvaluationService&) = delete;

  /// Serves the evaluator at the other end; `machine` is its server's name. At most 64 at a time.
  void take(UniqueFd socket, std::string host, std::string machine);
  [[nodiscard]] std::vector<EvaluatorStatus> evaluators() const;
  /// Dismisses this evaluator when it has measured its present checkpoint.
  void dismiss(std::uint64_t number);
  /// From now on each evaluator is dismissed when there is no checkpoint left for it to measure.
  /// Returns false when the last evaluator has left.
  [[nodiscard]] bool drain();
  /// Cancels evaluations in progress; afterwards no hook is called and no evaluator is served.
  void close();

 private:
  struct Connection {
    EvaluatorStatus status;
    UniqueFd socket;
    bool is_dismissed = false;
    bool is_over = false;
    std::thread thread;
  };

  void serve(Connection& connection);
  [[nodiscard]] Result<void> measure_all(Connection& connection);
  [[nodiscard]] std::optional<FoundCheckpoint> claim(Connection& connection);
  [[nodiscard]] Result<void> measure(Connection& connection, const FoundCheckpoint& checkpoint);
  void record(Connection& connection, Evaluation evaluation);

  const std::string run_dir_;
  const Hooks hooks_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::list<Connection> connections_;
  std::optional<SeenCheckpoints> seen_;  // measured or being measured; read when needed
  std::unique_ptr<LineFile> lines_;      // opened for the first line
  std::uint64_t next_number_ = 1;
  bool is_draining_ = false;
  bool is_closing_ = false;
};

/// The evaluator's side of one connection, after its request: measures the checkpoints that arrive,
/// until the coordinator dismisses the evaluator or `should_leave`, which is called twice a second,
/// is true. Returns the reason. After kPeerLost, kDeadline and kCorrupt the caller should connect
/// again.
[[nodiscard]] Result<std::string> serve_evaluations(
    int fd, const std::function<Evaluation(Step, const nn::CheckpointFiles&)>& measure,
    const std::function<bool()>& should_leave);

}  // namespace mayfly::engine
