#include "tests/sim/sweep.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <thread>

namespace mayfly::sim {
namespace {

constexpr std::uint64_t kSeedsAtOnce = 16;

/// What all threads add to. Sums, and the lowest seeds: equal for any order of arrival.
class Collected {
 public:
  Collected(const SweepOptions& options,
            const std::function<void(std::uint64_t, std::uint64_t)>& progress)
      : options_(options), progress_(progress) {}

  void add(const Scenario& scenario, RunResult run) {
    const std::lock_guard lock(mutex_);
    ++done_;
    sum_.totals.add_counts(run);
    sum_.totals.fingerprint += mix64(run.fingerprint ^ mix64(scenario.seed));
    if (!run.violations.empty()) {
      ++sum_.failing;
      keep({scenario, std::move(run)});
    }
    if (progress_ && (done_ % kSeedsAtOnce == 0 || done_ == options_.seeds)) {
      progress_(done_, sum_.failing);
    }
  }
  SweepResult take() { return std::move(sum_); }

 private:
  void keep(Failure failure) {
    std::vector<Failure>& first = sum_.first;
    const auto place = std::lower_bound(
        first.begin(), first.end(), failure.scenario.seed,
        [](const Failure& one, std::uint64_t seed) { return one.scenario.seed < seed; });
    first.insert(place, std::move(failure));
    if (first.size() > options_.failures_kept) {
      first.pop_back();
    }
  }

  const SweepOptions& options_;
  const std::function<void(std::uint64_t, std::uint64_t)>& progress_;
  std::mutex mutex_;
  std::uint64_t done_ = 0;  // guarded by mutex_, as is sum_
  SweepResult sum_;
};

void run_some(const SweepOptions& options, std::atomic<std::uint64_t>& next, Collected& into) {
  for (;;) {
    const std::uint64_t begin = next.fetch_add(kSeedsAtOnce);
    const std::uint64_t end = std::min(begin + kSeedsAtOnce, options.seeds);
    for (std::uint64_t i = begin; i < end; ++i) {
      Scenario scenario = draw_scenario(options.first_seed + i);
      scenario.sabotage = options.sabotage;
      into.add(scenario, simulate(scenario));
    }
    if (end <= begin || end == options.seeds) {
      return;
    }
  }
}

}  // namespace

SweepResult sweep(const SweepOptions& options,
                  const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  Collected collected(options, progress);
  std::atomic<std::uint64_t> next{0};
  std::vector<std::thread> others;
  for (unsigned i = 1; i < options.threads; ++i) {
    others.emplace_back([&] { run_some(options, next, collected); });
  }
  run_some(options, next, collected);
  for (std::thread& thread : others) {
    thread.join();
  }
  return collected.take();
}

std::string summary_line(const SweepOptions& options, const SweepResult& result) {
  std::string text =
      std::to_string(options.seeds) + " seeds from " + std::to_string(options.first_seed) + ": ";
  for (const auto& [name, count] : result.totals.counts()) {
    text += std::to_string(count) + ' ' + name + ", ";
  }
  char fingerprint[17];
  std::snprintf(fingerprint, sizeof fingerprint, "%016llx",
                static_cast<unsigned long long>(result.totals.fingerprint));
  return text + std::to_string(result.failing) + " seeds failing, fingerprint " + fingerprint;
}

std::string replay_command(const Scenario& scenario) {
  std::string text = "mayfly simulate --replay " + std::to_string(scenario.seed);
  if (scenario.sabotage != Sabotage::kNone) {
    text += std::string(" --sabotage ") + name_of(scenario.sabotage);
  }
  return text;
}

std::string story_of(const Failure& failure, std::size_t lines) {
  const RunResult& run = failure.result;
  std::string text = describe(failure.scenario) + '\n';
  for (const std::string& violation : run.violations) {
    text += "  violated: " + violation + '\n';
  }
  const std::size_t shown = std::min(run.history.size(), lines);
  if (shown < run.history.size()) {
    text += "  the last " + std::to_string(shown) + " of " + std::to_string(run.history.size()) +
            " events:\n";
  }
  for (std::size_t i = run.history.size() - shown; i < run.history.size(); ++i) {
    text += "  " + run.history[i] + '\n';
  }
  return text + "  replay: " + replay_command(failure.scenario) + '\n';
}

}  // namespace mayfly::sim
