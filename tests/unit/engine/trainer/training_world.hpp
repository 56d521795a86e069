#pragma once

// A job in one process: the real trainer of each worker on a thread of its own, with real compute
// threads, checkpoints and state transfers; the product's coordinator and member machines, driven
// by function calls; groups in memory (memory_hub.hpp). Workers die at an operation that the test
// chooses, so that every moment of a step can be tested, without processes and without timing.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "datasets/feed.hpp"
#include "elastic/core/coordinator.hpp"
#include "engine/config/config.hpp"
#include "engine/job/job.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "engine/run/records.hpp"
#include "engine/training/computer.hpp"
#include "engine/training/state_keeper.hpp"
#include "tests/unit/engine/temporary_folder.hpp"
#include "tests/unit/engine/trainer/memory_hub.hpp"

namespace mayfly::test_support {

/// The implementations of the trainer's ports for one worker.
struct WorkerKit {
  std::unique_ptr<engine::Job> job;
  std::unique_ptr<engine::ReductionLayout> layout;
  std::unique_ptr<datasets::Feed> feed;  ///< null = none
  std::unique_ptr<engine::Computer> computer;
  std::unique_ptr<engine::StateKeeper> state;
};
/// Makes the kit of one more worker, which calls `unrequested` when a microbatch is computed that
/// was not requested from the feed.
using KitMaker = std::function<WorkerKit(const engine::JobConfig& config,
                                         const std::function<void()>& unrequested)>;
/// One of the engine's own networks, as engine/processes/worker makes it.
[[nodiscard]] WorkerKit make_network_kit(const engine::JobConfig& config,
                                         const std::function<void()>& unrequested);

struct WorldOptions {
  std::uint32_t workers = 1;  ///< at the beginning of the job
  /// A joining worker receives a larger state while the other members train.
  std::uint64_t observe_from_bytes = std::uint64_t{8} << 20;
  KitMaker make_kit = make_network_kit;
};

/// The result of a job.
struct WorldEnd {
  elastic::Outcome outcome = elastic::Outcome::kFailed;
  std::string detail;
  std::map<std::uint64_t, std::string> digests;        ///< by step
  std::map<std::uint64_t, std::string> sample_hashes;  ///< by step
  std::vector<std::string> contradictions;             ///< two reports of one step that differ
  std::uint64_t views = 0;
  /// Reports of members that had not contributed to the first step of the view that ended.
  std::uint64_t without_part = 0;
  std::map<std::string, std::uint32_t> notes;    ///< of the coordinator, by kind
  std::map<MemberId, std::uint64_t> operations;  ///< number that each member has begun
  /// Microbatches that were computed without having been requested from the feed, so that they
  /// could not be prepared ahead.
  std::uint64_t unrequested = 0;
};

class TrainingWorld {
 public:
  TrainingWorld(const engine::JobConfig& config, const WorldOptions& options);
  ~TrainingWorld();

  /// Call before run(). Lets a worker (in the order of their starts, from 0) die at its operation
  /// of this number, counted from 0 over all its groups.
  void let_die(std::uint32_t worker, std::uint64_t operation, Death death);
  /// Call before run(). Starts one more worker when some member has committed this step.
  void let_join(std::uint64_t after_step) { joins_.insert(after_step); }
  /// Runs the job to its end. A job that does not end within a minute fails the test by its
  /// outcome.
  [[nodiscard]] WorldEnd run();

 private:
  class Worker;
  class Client;

  void start_worker();
  // Under mutex_:
  void give(const elastic::CoordinatorEvent& event);
  void carry_out(const elastic::CoordinatorEffect& effect);
  void deliver(MemberId member, const elastic::Message& message);
  void note_step(const engine::StepRecord& record);
  void note_unrequested();
  void start_joiners();
  // On workers' threads:
  [[nodiscard]] std::optional<Death> fate_of(MemberId member);
  void has_died(MemberId member);

  const engine::JobConfig config_;
  const KitMaker make_kit_;
  const TemporaryFolder folder_;
  MemoryHub hub_;
  struct Fate {
    std::uint64_t operation = 0;
    Death death = Death::kBefore;
  };
  std::map<std::uint32_t, Fate> fates_;  // by worker
  std::multiset<std::uint64_t> joins_;

  std::recursive_mutex mutex_;  // of the coordinator, the members and what follows
  std::condition_variable_any changed_;
  std::unique_ptr<elastic::Coordinator> coordinator_;
  std::deque<elastic::CoordinatorEvent> events_;  // the first one is being handled
  std::vector<std::unique_ptr<Worker>> workers_;
  std::map<MemberId, Worker*> members_;
  std::uint64_t committed_ = 0;
  bool has_ended_ = false;
  WorldEnd end_;
};

}  // namespace mayfly::test_support
