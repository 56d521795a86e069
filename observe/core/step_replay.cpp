#include "observe/core/step_replay.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/check.hpp"

namespace mayfly::observe {
namespace {

constexpr std::uint32_t kFillingSteps = 8;
constexpr std::uint32_t kCountedSteps = 24;
constexpr int kCalibrations = 12;
/// The scheduler's weight of a thread of niceness 10 beside one of 0 (the kernel's table
/// sched_prio_to_weight).
constexpr double kYieldingWeight = 110.0 / 1024;
constexpr double kNever = std::numeric_limits<double>::infinity();

enum class Doing { kNothing, kFetch, kPrepare, kWait, kCompute, kWaitForDevice };

struct Entry {
  enum class State { kWaiting, kPreparing, kReady };
  std::uint64_t number = 0;  ///< of the worker's microbatches, over all steps
  State state = State::kWaiting;
};

struct Thread {
  std::size_t worker = 0;
  bool loads = false;
  Doing doing = Doing::kNothing;
  std::uint64_t number = 0;  ///< its microbatch
  double left = 0;           ///< milliseconds at full speed; of kFetch until its end
  double since = 0;          ///< when it began to compute
};

struct Worker {
  std::vector<Entry> entries;   ///< requested but not taken, in order
  std::uint64_t requested = 0;  ///< microbatches so far
  std::uint64_t next = 0;       ///< the next one that a computing thread takes
  std::uint64_t may_take = 0;   ///< the end of the present step's microbatches
  std::uint64_t done = 0;
  double storage_free = 0;
  double computed = 0;  ///< milliseconds of the counted microbatches
  std::uint64_t counted = 0;
};

class Replay {
 public:
  explicit Replay(const Pipeline& pipeline)
      : pipeline_(pipeline), workers_(pipeline.workers.size()) {
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      const PipelineWorker& facts = pipeline_.workers[w];
      ENSURE(facts.microbatches > 0 && facts.compute_threads > 0, "every worker computes");
      threads_.insert(threads_.end(), facts.compute_threads, Thread{w, false, Doing::kNothing});
      threads_.insert(threads_.end(), facts.load_threads, Thread{w, true, Doing::kNothing});
    }
  }

  ReplayedStep run() {
    double began = 0;
    for (step_ = 0; step_ < kFillingSteps + kCountedSteps; ++step_) {
      if (step_ == kFillingSteps) {
        began = now_;
      }
      begin_step();
      while (!step_is_done()) {
        const double next = time_to_next_end();
        ENSURE(next < kNever, "while a step is not done, some thread works");
        advance_to(now_ + next);
      }
      advance_to(now_ + pipeline_.exchange_ms + pipeline_.update_ms);
    }
    ReplayedStep result;
    result.step_ms = (now_ - began) / kCountedSteps;
    for (const Worker& worker : workers_) {
      result.computed_ms.push_back(worker.computed / static_cast<double>(worker.counted));
    }
    return result;
  }

 private:
  void begin_step() {
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      Worker& worker = workers_[w];
      const std::uint64_t share = pipeline_.workers[w].microbatches;
      worker.may_take += share;
      // Requests the microbatches of the next step, and in the first step also those of this one.
      while (worker.requested < worker.may_take + share) {
        worker.entries.push_back({worker.requested++, Entry::State::kWaiting});
      }
    }
    start_idle_threads();
  }

  [[nodiscard]] bool step_is_done() const {
    return std::ranges::all_of(workers_, [](const Worker& w) { return w.done == w.may_take; });
  }

  // Advances the time to `until`, and processes every end of an activity of a thread on the way.
  void advance_to(double until) {
    do {
      const double duration = std::min(until - now_, time_to_next_end());
      for (Thread& thread : threads_) {
        if (is_timed(thread)) {
          thread.left -= duration * rate_of(thread);
        }
      }
      now_ = duration < until - now_ ? now_ + duration : until;
      end_what_is_done();
      start_idle_threads();
    } while (now_ < until);
  }

  [[nodiscard]] static bool is_timed(const Thread& thread) {
    return thread.doing != Doing::kNothing && thread.doing != Doing::kWait;
  }
  [[nodiscard]] static bool needs_core(const Thread& thread) {
    return thread.doing == Doing::kPrepare || thread.doing == Doing::kCompute;
  }

  [[nodiscard]] double time_to_next_end() {
    share_cores();
    double least = kNever;
    for (const Thread& thread : threads_) {
      if (is_timed(thread)) {
        least = std::min(least, std::max(0.0, thread.left) / rate_of(thread));
      }
    }
    return least;
  }

  [[nodiscard]] double weight_of(const Thread& thread) const {
    return thread.loads && pipeline_.workers[thread.worker].yields ? kYieldingWeight : 1;
  }
  [[nodiscard]] double rate_of(const Thread& thread) const {
    if (!needs_core(thread)) {
      return 1;
    }
    const auto host = core_per_weight_.find(pipeline_.workers[thread.worker].host);
    return host == core_per_weight_.end() ? 1 : std::min(1.0, host->second * weight_of(thread));
  }

  // Distributes the cores of a host by the weights of its threads. No thread gets more than one
  // core; the rest of a heavy thread's share goes to the light ones.
  void share_cores() {
    core_per_weight_.clear();
    for (const auto& [host, cores] : pipeline_.cores) {
      double heavy = 0;
      double light = 0;
      for (const Thread& thread : threads_) {
        if (needs_core(thread) && pipeline_.workers[thread.worker].host == host) {
          (weight_of(thread) == 1 ? heavy : light) += 1;
        }
      }
      if (heavy + light <= cores) {
        continue;
      }
      double per_weight = cores / (heavy + light * kYieldingWeight);
      if (per_weight > 1) {  // each heavy thread has one core
        per_weight = (cores - heavy) / (light * kYieldingWeight);
      }
      core_per_weight_[host] = per_weight;
    }
  }

  void end_what_is_done() {
    const double rounding = 1e-9 + 1e-12 * now_;  // a smaller step would not change now_
    for (Thread& thread : threads_) {
      if (!is_timed(thread) || thread.left > rounding) {
        continue;
      }
      Worker& worker = workers_[thread.worker];
      switch (thread.doing) {
        case Doing::kFetch: go_on(thread, Doing::kPrepare); break;
        case Doing::kPrepare:
          if (thread.loads) {
            entry_of(worker, thread.number)->state = Entry::State::kReady;
            thread.doing = Doing::kNothing;
          } else {
            go_on(thread, Doing::kCompute);
          }
          break;
        case Doing::kCompute: go_on(thread, Doing::kWaitForDevice); break;
        case Doing::kWaitForDevice:
          worker.done += 1;
          if (step_ >= kFillingSteps) {
            worker.counted += 1;
            worker.computed += now_ - thread.since;
          }
          thread.doing = Doing::kNothing;
          break;
        case Doing::kNothing:
        case Doing::kWait: break;
      }
    }
  }

  void go_on(Thread& thread, Doing doing) {
    const PipelineWorker& facts = pipeline_.workers[thread.worker];
    Worker& worker = workers_[thread.worker];
    thread.doing = doing;
    switch (doing) {
      case Doing::kFetch:
        if (facts.storage_rate) {
          worker.storage_free =
              std::max(worker.storage_free, now_) + 1000 * facts.bytes / *facts.storage_rate;
          thread.left = worker.storage_free - now_;
        } else {
          thread.left = facts.fetch_ms;
        }
        break;
      case Doing::kPrepare: thread.left = facts.prep_ms; break;
      case Doing::kCompute:
        thread.left = facts.compute_ms;
        thread.since = now_;
        break;
      case Doing::kWaitForDevice: thread.left = facts.wait_ms; break;
      case Doing::kNothing:
      case Doing::kWait: thread.left = 0; break;
    }
  }

  static Entry* entry_of(Worker& worker, std::uint64_t number) {
    const auto found = std::ranges::find(worker.entries, number, &Entry::number);
    return found == worker.entries.end() ? nullptr : &*found;
  }

  void start_idle_threads() {
    for (Thread& thread : threads_) {
      if (!thread.loads && thread.doing == Doing::kWait) {
        take(thread);
      }
    }
    for (Thread& thread : threads_) {
      Worker& worker = workers_[thread.worker];
      if (!thread.loads && thread.doing == Doing::kNothing && worker.next < worker.may_take) {
        thread.number = worker.next++;
        take(thread);
      }
    }
    for (Thread& thread : threads_) {
      if (thread.loads && thread.doing == Doing::kNothing) {
        load_next(thread);
      }
    }
  }

  // Like Loader::take(): the thread that takes a microbatch prepares it if no loading thread has
  // begun it.
  void take(Thread& thread) {
    Worker& worker = workers_[thread.worker];
    Entry* const entry = entry_of(worker, thread.number);
    ENSURE(entry != nullptr, "a step's microbatches are requested before it begins");
    if (entry->state == Entry::State::kPreparing) {
      thread.doing = Doing::kWait;
      return;
    }
    const bool is_ready = entry->state == Entry::State::kReady;
    worker.entries.erase(worker.entries.begin() + (entry - worker.entries.data()));
    go_on(thread, is_ready ? Doing::kCompute : Doing::kFetch);
  }

  void load_next(Thread& thread) {
    Worker& worker = workers_[thread.worker];
    std::uint32_t begun = 0;
    for (Entry& entry : worker.entries) {
      if (begun >= pipeline_.workers[thread.worker].ahead) {
        return;
      }
      if (entry.state == Entry::State::kWaiting) {
        entry.state = Entry::State::kPreparing;
        thread.number = entry.number;
        go_on(thread, Doing::kFetch);
        return;
      }
      begun += 1;
    }
  }

  const Pipeline& pipeline_;
  std::vector<Worker> workers_;
  std::vector<Thread> threads_;
  std::map<std::string, double> core_per_weight_;  // of hosts with fewer cores than threads
  double now_ = 0;
  std::uint32_t step_ = 0;
};

}  // namespace

ReplayedStep replay(const Pipeline& pipeline) {
  return Replay(pipeline).run();
}

void calibrate(Pipeline& pipeline, const std::vector<double>& computed_ms) {
  ENSURE(computed_ms.size() == pipeline.workers.size(), "one time for each worker");
  for (int round = 0; round < kCalibrations; ++round) {
    const ReplayedStep replayed = replay(pipeline);
    for (std::size_t w = 0; w < computed_ms.size(); ++w) {
      double& wait = pipeline.workers[w].wait_ms;
      wait = std::max(0.0, wait + computed_ms[w] - replayed.computed_ms[w]);
    }
  }
}

}  // namespace mayfly::observe
