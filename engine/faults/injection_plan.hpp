#pragma once

// Scripted slowness for experiments with stragglers, in any job (--inject):
//   delay=30ms,worker=1,from=step100,to=step400; slow=2.5x,worker=0; stop=50%,from=10s; fetch=2ms
// Rules are separated by semicolons, or --inject is given again. Each has one effect:
//   delay=TIME     what the worker sends leaves so much later (us, ms or s)
//   slow=FACTORx   its microbatches take so many times as long: after each, its thread waits for
//                  FACTOR - 1 times what it computed. Time in which it was kept from computing, as
//                  by other processes or by SIGSTOP, is not multiplied
//   stop=SHARE%    its process stands still (SIGSTOP) for that share of each 50 ms
//   fetch=TIME     reading the images of a microbatch takes so much longer
//   storage=RATE   it reads images at this rate at most (kB/s, MB/s or GB/s, powers of ten)
//   prep=TIME      preparing a microbatch takes so much more processor time
// and holds for one worker (by number, in the order of starting, from 0; without it for all),
// `from` a step or a second of its training `to` another, both included. Nothing here changes what
// is computed. Pure; no thread matters.

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
  double storage = 0;  ///< bytes per second; 0 = as fast as it is
  Duration prep{};
  std::optional<std::uint32_t> worker;
  std::optional<InjectionMoment> from;
  std::optional<InjectionMoment> to;
  friend bool operator==(const InjectionRule&, const InjectionRule&) = default;
};

/// What holds at some moment, of all rules together.
struct InjectedEffects {
  Duration delay{};    ///< the sum
  double slow = 1;     ///< the product
  double stop = 0;     ///< the largest
  Duration fetch{};    ///< the sum
  double storage = 0;  ///< the lowest
  Duration prep{};     ///< the sum
  friend bool operator==(const InjectedEffects&, const InjectedEffects&) = default;
};

/// kInvalidInput says which rule is wrong, why, and shows a right one.
[[nodiscard]] Result<std::vector<InjectionRule>> parse_injections(const std::string& text);

/// The rules that hold for this worker.
[[nodiscard]] std::vector<InjectionRule> injections_of_worker(
    const std::vector<InjectionRule>& rules, std::uint32_t worker);

/// While the worker computes this step, so many seconds after its first one began.
[[nodiscard]] InjectedEffects effects_at(const std::vector<InjectionRule>& rules,
                                         std::uint64_t step, double seconds);

/// The shortest text that parses to the same rule.
[[nodiscard]] std::string to_text(const InjectionRule& rule);

}  // namespace mayfly::engine
