#pragma once

// The coordinator's side of transfers of checkpoints (checkpoint_transfer.hpp). It receives the
// checkpoints that workers have written into its own run directory. If no member has the job's
// state, it sends a joining worker the newest checkpoint or the one that the job is resumed from;
// it sends the latter to each parameter server. It also sends workers the settings of the job.
// Checkpoints are received one at a time and sent one at a time; other requests are answered
// meanwhile.

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "base/unique_fd.hpp"
#include "engine/job/job.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/run_history.hpp"
#include "engine/transfers/checkpoint_transfer.hpp"
#include "engine/transfers/connection_queue.hpp"

namespace mayfly::engine {

class CheckpointReceiver {
 public:
  struct Hooks {
    /// All hooks are called on threads of the receiver.
    std::function<void(const ReceivedCheckpoint&)> on_received;
    std::function<void(const std::string& why)> on_refused;
    /// If no member has the job's state: the last committed step, or the one that the job begins
    /// with. Otherwise nothing.
    std::function<std::optional<Step>()> step_without_holder;
    /// If members have the job's state: the last step that they are known to have committed.
    /// Otherwise nothing.
    std::function<std::optional<Step>()> step_of_holders;
    /// Called in a job without facts when a worker has sent them. Returns when the job is complete,
    /// or the reason why these facts do not complete it. Null: the job is complete, and no worker
    /// is asked for facts.
    std::function<Result<void>(const JobFacts&)> on_facts;
    /// Serves a worker that asks for the data set, on another thread than the receiver's.
    std::function<void(UniqueFd socket, std::string host)> on_data = {};
    /// Serves an evaluator, on another thread than the receiver's.
    std::function<void(UniqueFd socket, std::string host, std::string machine)> on_evaluator = {};
    /// Further settings, as TOML, for the machine of this name. Null: none.
    std::function<std::string(const std::string& machine)> on_settings = {};
    /// Whether this coordinator decides for the job; if not, a parameter server has to ask again.
    /// Null: it does.
    std::function<bool()> is_in_charge = {};
  };

  /// `start`: the checkpoint that the job was resumed from, if it was. `newest`: the step of the
  /// newest checkpoint that an earlier coordinator process has received. `settings`: the answer to
  /// workers that ask for the settings.
  CheckpointReceiver(const Job& job, StartingPoint start, std::optional<Step> newest,
                     std::string settings, Hooks hooks);
  /// Queues this connection to be served. Any thread.
  void take(UniqueFd socket, std::string host);
  /// Whether a connection is being served or waits for it. Any thread.
  [[nodiscard]] bool is_busy() const {
    return requests_.is_busy() || states_.is_busy() || offers_.is_busy();
  }

 private:
  using Transfer = ConnectionQueue::Connection;

  [[nodiscard]] Result<void> serve(Transfer& transfer);
  [[nodiscard]] Result<void> receive(const Transfer& transfer, const TransferOffer& offer);
  [[nodiscard]] Result<void> save(const Transfer& transfer, Step step,
                                  const nn::CheckpointFiles& files, Instant began,
                                  std::uint64_t travelled);
  [[nodiscard]] Result<void> answer(const Transfer& transfer, const TransferQuestion& question);
  [[nodiscard]] Result<void> send_settings(const Transfer& transfer,
                                           const std::string& machine) const;
  [[nodiscard]] Result<void> pass_on_data_request(Transfer& transfer);
  [[nodiscard]] Result<void> take_facts(const Transfer& transfer, const std::string& text);
  [[nodiscard]] std::optional<std::string> reason_to_refuse(const TransferOffer& offer) const;
  [[nodiscard]] std::optional<std::string> reason_to_refuse(const TransferQuestion& asked) const;
  [[nodiscard]] bool has(const TransferOffer& offer) const;
  [[nodiscard]] bool comes_too_late(const TransferOffer& offer) const;
  [[nodiscard]] bool is_the_start(const TransferQuestion& asked) const;
  [[nodiscard]] bool lacks_start(const TransferQuestion& asked) const;
  [[nodiscard]] std::optional<LoadedCheckpoint> start_for(const TransferQuestion& asked) const;
  [[nodiscard]] Result<std::optional<LoadedCheckpoint>> better_than(const TransferQuestion& asked);
  [[nodiscard]] Result<LoadedCheckpoint> newest_intact();
  [[nodiscard]] std::optional<Step> newest() const;
  void on_saved(const ReceivedCheckpoint& received);

  const Job& job_;
  const StartingPoint start_;
  const std::string settings_;
  const Hooks hooks_;
  const std::string folder_;  // of checkpoints
  bool lacks_facts_;          // the job is not complete; used by the thread of requests_
  // Used by the thread of offers_: a transfer that may continue after its connection broke, and the
  // last offer whose files arrived with another hash.
  std::optional<IncomingCheckpoint> incoming_;
  std::optional<TransferOffer> damaged_;
  mutable std::mutex mutex_;
  std::optional<Step> newest_;  // the newest received since the job was resumed; guarded by mutex_

  // A transfer may take minutes. A worker that joins does not wait until a checkpoint has been
  // received, and one that needs no checkpoint does not wait until another one has been sent.
  ConnectionQueue offers_{"results"};
  ConnectionQueue states_{"states"};
  ConnectionQueue requests_{"requests"};  // last, because it passes connections to the others
};

}  // namespace mayfly::engine
