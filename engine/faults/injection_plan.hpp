#pragma once

// Scripted slowness for experiments with stragglers, in any job (--inject):
//   delay=30ms,worker=1,from=step100,to=step400; slow=2.5x,worker=0; stop=50%,from=10s; fetch=2ms
// Rules are separated by semicolons, or --inject is given again. Each has one effect:
//   delay=TIME     the worker's messages are sent this much later (us, ms or s)
//   slow=FACTORx   its microbatches take this many times as long: after each, its thread waits for
//                  FACTOR - 1 times its computing time. Time in which the thread could not compute,
//                  because of other processes or SIGSTOP, is not multiplied
//   stop=SHARE%    its process is stopped (SIGSTOP) for this share of each 50 ms
//   fetch=TIME     reading the images of a microbatch takes this much longer
//   storage=RATE   it reads images at this rate at most (kB/s, MB/s or GB/s, powers of ten)
//   prep=TIME      preparing a microbatch takes this much more processor time
// and applies to one worker (its number in the order of starting, from 0; by default to all), from
// the step or second `from` of its training up to and including `to`. No rule changes the results
// of a computation. Pure; no thread matters.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"

namespace mayfly::engine {

/// A moment of a worker's training.
struct InjectionMoment {
  bool in_seconds = false;  ///< since its first step; else a step
  std::uint64_t step = 0;
  double seconds = 0;
  friend bool operator==(const InjectionMoment&, const InjectionMoment&) = default;
};

struct InjectionRule {
  Duration delay{};
  double slow = 1;
  double stop = 0;  ///< share of the time, below 1
  Duration fetch{};
  double storage = 0;  ///< bytes per second; 0 = unlimited
  Duration prep{};
  std::optional<std::uint32_t> worker;
  std::optional<InjectionMoment> from;
  std::optional<InjectionMoment> to;
  friend bool operator==(const InjectionRule&, const InjectionRule&) = default;
};

/// The effects of all rules together at some moment.
struct InjectedEffects {
  Duration delay{};    ///< the sum
  double slow = 1;     ///< the product
  double stop = 0;     ///< the largest
  Duration fetch{};    ///< the sum
  double storage = 0;  ///< the lowest
  Duration prep{};     ///< the sum
  friend bool operator==(const InjectedEffects&, const InjectedEffects&) = default;
};

/// kInvalidInput names the wrong rule and the reason, and shows a valid one.
[[nodiscard]] Result<std::vector<InjectionRule>> parse_injections(const std::string& text);

/// The rules that apply to this worker.
[[nodiscard]] std::vector<InjectionRule> injections_of_worker(
    const std::vector<InjectionRule>& rules, std::uint32_t worker);

/// The effects while the worker computes this step, `seconds` after its first step began.
[[nodiscard]] InjectedEffects effects_at(const std::vector<InjectionRule>& rules,
                                         std::uint64_t step, double seconds);

/// The shortest text that parses to the same rule.
[[nodiscard]] std::string to_text(const InjectionRule& rule);

}  // namespace mayfly::engine
