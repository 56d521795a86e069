#pragma once

// The coordinator's side of checkpoints that travel (checkpoint_transfer.hpp): takes what workers
// have written into its own run directory, and gives the newest, or that which the job is resumed
// from, to a worker that joins when nobody holds the job's state, and the latter to each parameter
// server; tells workers the settings of the job. Checkpoints are taken one after the other, and
// given one after the other, and other requests are answered beside that.

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
    /// This and what follows is called by threads of the receiver.
    std::function<void(const ReceivedCheckpoint&)> on_received;
    std::function<void(const std::string& why)> on_refused;
    /// If nobody holds the job's state: the last committed step, or that which the job begins with.
    std::function<std::optional<Step>()> step_without_holder;
    /// If members hold the job's state: the last step that it is known to have committed.
    std::function<std::optional<Step>()> step_of_holders;
    /// If the job is not complete: a worker's facts of it. Returns when the job is complete, or why
    /// it cannot be with these. Null: the job is complete, and nobody is asked for facts.
    std::function<Result<void>(const JobFacts&)> on_facts;
    /// Serves a worker that asks for the data set, elsewhere than on the receiver's threads.
    std::function<void(UniqueFd socket, std::string host)> on_data = {};
    /// Serves an evaluator, elsewhere than on the receiver's threads.
    std::function<void(UniqueFd socket, std::string host, std::string machine)> on_evaluator = {};
    /// What a machine of this name is told besides the settings, as TOML. Null: nothing.
    std::function<std::string(const std::string& machine)> on_settings = {};
    /// This coordinator decides for the job; else a parameter server asks again. Null: it does.
    std::function<bool()> is_in_charge = {};
  };

  /// `start`: what the job was resumed from, if it was. `newest`: what a coordinator before us has
  /// taken. `settings`: what is told to who asks.
  CheckpointReceiver(const Job& job, StartingPoint start, std::optional<Step> newest,
                     std::string settings, Hooks hooks);
  /// Serves this connection in its turn. Any thread.
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
  [[nodiscard]] Result<void> tell_settings(const Transfer& transfer,
                                           const std::string& machine) const;
  [[nodiscard]] Result<void> pass_on(Transfer& transfer);
  [[nodiscard]] Result<void> take_facts(const Transfer& transfer, const std::string& text);
  [[nodiscard]] std::optional<std::string> reason_to_refuse(const TransferOffer& offer) const;
  [[nodiscard]] std::optional<std::string> reason_to_refuse(const TransferQuestion& asked) const;
  [[nodiscard]] bool has(const TransferOffer& offer) const;
  [[nodiscard]] bool comes_too_late(const TransferOffer& offer) const;
  [[nodiscard]] bool is_the_start(const TransferQuestion& asked) const;
  [[nodiscard]] bool lacks_start(const TransferQuestion& asked) const;
  [[nodiscard]] std::optional<LoadedCheckpoint> start_for(const TransferQuestion& asked) const;
  [[nodiscard]] std::optional<LoadedCheckpoint> better_than(const TransferQuestion& asked) const;
  [[nodiscard]] std::optional<Step> newest() const;
  void is_here(const ReceivedCheckpoint& received);

  const Job& job_;
  const StartingPoint start_;
  const std::string settings_;
  const Hooks hooks_;
  const std::string folder_;                    // of checkpoints
  bool lacks_facts_;                            // of requests_: the job is not complete
  std::optional<IncomingCheckpoint> incoming_;  // of offers_: what broke off goes on
  std::optional<TransferOffer> damaged_;        // of offers_: what last came with another hash
  mutable std::mutex mutex_;
  std::optional<Step> newest_;  // guarded by mutex_; here, of this part of the run

  // A checkpoint may travel for minutes. Whoever wants to join does not wait for one that comes,
  // and whoever is not to be given one does not wait for one that is given to another worker.
  ConnectionQueue offers_{"results"};
  ConnectionQueue states_{"states"};
  ConnectionQueue requests_{"requests"};  // the last one: it hands over to the others
};

}  // namespace mayfly::engine
