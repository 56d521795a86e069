#include "tests/sim/sweep.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <thread>

#include "base/random.hpp"

namespace mayfly::sim {
namespace {

constexpr std::uint64_t kSeedsAtOnce = 16;

/// The results of all threads. They are sums and the lowest seeds, so they do not depend on the
/// order in which threads add to them.
class Collected {
 public:
  Collected(const SweepOptions& options,
            const std::function<void(std::uint64_t, std::uint64_t)>& progress)
      : options_(options), progress_(progress) {}

  void add(Outcome run) {
    const std::lock_guard lock(mutex_);
    ++done_;
    add_counts(run);
    sum_.fingerprint += mix64(run.fingerprint ^ mix64(run.seed));
    if (!run.violations.empty()) {
      ++sum_.failing;
      keep(std::move(run));
    }
    if (progress_ && (done_ % kSeedsAtOnce == 0 || done_ == options_.seeds)) {
      progress_(done_, sum_.failing);
    }
  }
  SweepResult take() { return std::move(sum_); }

 private:
  void add_counts(const Outcome& run) {
    if (sum_.counts.empty()) {
      sum_.counts = run.counts;
      return;
    }
    for (std::size_t i = 0; i < run.counts.size(); ++i) {
      sum_.counts[i].second += run.counts[i].second;
    }
  }

  void keep(Outcome failure) {
    std::vector<Outcome>& first = sum_.first;
    const auto place =
        std::lower_bound(first.begin(), first.end(), failure.seed,
                         [](const Outcome& one, std::uint64_t seed) { return one.seed < seed; });
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
      into.add(options.world->play(options.first_seed + i, options.sabotage));
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
  for (const auto& [name, count] : result.counts) {
    text += std::to_string(count) + ' ' + name + ", ";
  }
  char fingerprint[17];
  std::snprintf(fingerprint, sizeof fingerprint, "%016llx",
                static_cast<unsigned long long>(result.fingerprint));
  return text + std::to_string(result.failing) + " seeds failing, fingerprint " + fingerprint;
}

std::string story_of(const Outcome& run, std::size_t lines) {
  std::string text = run.scenario + '\n';
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
  return text + "  replay: " + run.replay + '\n';
}

}  // namespace mayfly::sim
