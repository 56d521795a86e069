#pragma once

// How the workers of a job with parameter servers are synchronised in each part of the job. Pure;
// any thread.
//
// All work is divided into slices: in each phase every step's global batch is cut into the same
// number of slices, whatever the number of workers. Slices are numbered through the whole job; a
// worker computes the gradient of a whole slice and pushes it once.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace mayfly::parameter_server {

enum class SyncKind : std::uint8_t {
  kBsp,     ///< an update is the mean of all slices of a round; all workers wait for it
  kAsp,     ///< every slice is an update; no worker waits for others
  kSsp,     ///< as kAsp, but a worker is at most `staleness` slices ahead of the slowest
  kBackup,  ///< an update is the mean of the first `needed` slices; later ones are dropped
};

struct SyncPolicy {
  SyncKind kind = SyncKind::kBsp;
  std::uint32_t staleness = 0;  ///< kSsp
  std::uint32_t needed = 0;     ///< kBackup: the first so many slices ...
  std::uint32_t workers = 0;    ///< ... of so many workers
  friend bool operator==(const SyncPolicy&, const SyncPolicy&) = default;
};

/// "bsp", "asp", "ssp:S" or "backup:N-of-M" with 1 <= N <= M; anything else is kInvalidInput.
[[nodiscard]] Result<SyncPolicy> parse_sync_policy(std::string_view text);
[[nodiscard]] std::string to_text(const SyncPolicy& policy);
/// Every slice is an update.
[[nodiscard]] inline bool is_stream(const SyncPolicy& policy) {
  return policy.kind == SyncKind::kAsp || policy.kind == SyncKind::kSsp;
}

/// The factor of the learning rate for an update made of less than a global batch.
enum class RateRule : std::uint8_t {
  kLinear,      ///< the share of the global batch
  kSqrt,        ///< its square root
  kFixed,       ///< one
  kLiveLinear,  ///< one divided by the number of live workers
  kLiveSqrt,    ///< one divided by its square root
};
[[nodiscard]] Result<RateRule> parse_rate_rule(std::string_view text);
/// `share` in (0, 1]; `workers` live, at least 1. A whole global batch has factor 1.
[[nodiscard]] double rate_factor(RateRule rule, double share, std::uint32_t workers);

/// Settings of one phase. A setting without a value is that of the whole job.
struct PhaseSettings {
  double rate = 1;  ///< factor of the schedule's learning rate
  std::optional<RateRule> rule{};
  std::optional<double> momentum{};
  std::optional<double> weight_decay{};
  std::optional<std::uint64_t> checkpoint_every{};  ///< steps; 0 = none
  /// The rate rises in equal parts for so many steps, beginning with this one (the first step has
  /// number 1); 0 = it does not rise.
  std::uint64_t ramp_steps = 0;
  std::uint64_t ramp_first = 1;
  friend bool operator==(const PhaseSettings&, const PhaseSettings&) = default;
};

/// A part of the job with one policy: the slices [first, last). Whole steps.
struct SyncPhase {
  SyncPolicy policy;
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::uint64_t first_step = 0;       ///< number of steps that are done before it
  std::uint32_t slices_per_step = 1;  ///< a multiple of `round`
  std::uint32_t round = 1;            ///< slices of an update, in phases that have rounds
  PhaseSettings settings{};
  bool is_recorded = false;  ///< the state is recorded at its end
  bool restores = false;     ///< parameters were restored before it, which counts as an update

  [[nodiscard]] std::uint64_t steps() const { return (last - first) / slices_per_step; }
  [[nodiscard]] std::uint64_t last_step() const { return first_step + steps(); }
  friend bool operator==(const SyncPhase&, const SyncPhase&) = default;
};

/// Training has diverged: the slices from `at` on start with the parameters after the slices before
/// `to`, and use the samples that followed those.
struct Rewind {
  std::uint64_t at = 0;  ///< above `to`; 0 = none
  std::uint64_t to = 0;
  friend bool operator==(const Rewind&, const Rewind&) = default;
};

/// The phases of a job; equal on all its processes.
class SyncPlan {
 public:
  /// `phases` follow each other without a gap; at least one; none is empty. `slices_per_step` is
  /// the number of slices of a step in phases that do not set their own.
  SyncPlan(std::vector<SyncPhase> phases, std::uint32_t slices_per_step);

  /// The same plan, with phases cut in two after each of these steps inside them. At the end of
  /// each step in `recorded`, also at the end of a phase, the state is recorded.
  [[nodiscard]] SyncPlan cut_after(const std::set<std::uint64_t>& steps,
                                   const std::set<std::uint64_t>& recorded) const;
  /// The rest of the job, from `rewind.at` on, is kBsp and repeats the slices after `rewind.to`.
  /// Both begin a step; this happens at most once in a job.
  void fall_back(const Rewind& rewind);
  [[nodiscard]] const std::optional<Rewind>& rewound() const { return rewound_; }

  [[nodiscard]] const std::vector<SyncPhase>& phases() const { return phases_; }
  [[nodiscard]] std::uint32_t slices_per_step() const { return slices_per_step_; }
  [[nodiscard]] std::uint64_t first_slice() const { return phases_.front().first; }
  [[nodiscard]] std::uint64_t last_slice() const { return phases_.back().last; }
  /// The phase of a slice; for last_slice() the last one.
  [[nodiscard]] std::size_t index_of(std::uint64_t slice) const;
  [[nodiscard]] const SyncPhase& phase_of(std::uint64_t slice) const {
    return phases_[index_of(slice)];
  }
  /// The number of updates of the parameters when exactly the slices before `slice` are applied,
  /// which is the number of their version. `slice` begins a phase, a round of kBsp, or is the end.
  [[nodiscard]] std::uint64_t version_at(std::uint64_t slice) const;
  /// The first slice of the round that `slice` belongs to; in a phase of kBsp.
  [[nodiscard]] std::uint64_t round_of(std::uint64_t slice) const;
  /// The number of whole steps that are done after so many slices, in any order within their phase.
  [[nodiscard]] std::uint64_t steps_before(std::uint64_t slices) const;
  /// The slice begins a step, or is the end.
  [[nodiscard]] bool is_border(std::uint64_t slice) const;
  /// The slice begins a phase: when exactly the slices before it are applied, no shard has any
  /// other slice.
  [[nodiscard]] bool is_cut(std::uint64_t slice) const;
  /// The factor of the schedule's learning rate for an update that follows so many slices.
  [[nodiscard]] double rate_after(std::uint64_t slices) const;

 private:
  std::vector<SyncPhase> phases_;
  std::uint32_t slices_per_step_;
  std::optional<Rewind> rewound_;
};

/// A growing set of slices that is almost a prefix: everything below a mark, and a few above it.
class SliceSet {
 public:
  /// The set contains every slice below `first`.
  explicit SliceSet(std::uint64_t first) : below_(first) {}

  /// False if the slice was already in the set.
  bool add(std::uint64_t slice) {
    if (contains(slice)) {
      return false;
    }
    above_.insert(slice);
    while (!above_.empty() && *above_.begin() == below_) {
      above_.erase(above_.begin());
      ++below_;
    }
    return true;
  }
  [[nodiscard]] bool contains(std::uint64_t slice) const {
    return slice < below_ || above_.contains(slice);
  }
  /// Every slice below this one is in the set.
  [[nodiscard]] std::uint64_t prefix() const { return below_; }
  /// The number of slices in the set.
  [[nodiscard]] std::uint64_t count() const { return below_ + above_.size(); }

 private:
  std::uint64_t below_;
  std::set<std::uint64_t> above_;
};

/// How a phase without rounds (asp, ssp) begins if there was no such phase before it.
struct WarmUp {
  bool by_bsp = false;      ///< true: with a phase of kBsp; false: with a rising learning rate
  std::uint64_t steps = 0;  ///< 0 = at once
};

/// The length of a job, for parse_phases().
struct JobLength {
  std::uint64_t first_step = 0;  ///< steps that are committed already
  std::uint64_t last_step = 1;
  std::uint32_t slices_per_step = 1;
  std::uint64_t samples_per_step = 1;
  std::uint32_t microbatches = 0;  ///< microbatches of a step; 0 = as many as slices
  WarmUp warm_up{};
};

/// "POLICY[:AMOUNT][{NAME=VALUE,...}],...", for example "bsp:6.25%,asp{lr=0.5x}" or
/// "ssp:2:400steps,bsp:51200samples{momentum=0.8,batch=64},asp". An amount is a share of the whole
/// job, steps or samples, rounded to whole steps of at least one. Only the last phase may lack an
/// amount; it always gets the rest of the job. Settings: lr (a factor, "0.5x"), lr-rule, momentum,
/// weight-decay, checkpoint-every (steps), batch (samples of an update). Phases that a resumed job
/// has completed are left out. kInvalidInput names the phase and the fault.
[[nodiscard]] Result<SyncPlan> parse_phases(std::string_view text, const JobLength& length);
/// "bsp:AMOUNT" or "ramp:AMOUNT"; empty = none.
[[nodiscard]] Result<WarmUp> parse_warm_up(std::string_view text, const JobLength& length);
/// The names of a phase's settings.
[[nodiscard]] const std::vector<std::string>& phase_setting_names();

}  // namespace mayfly::parameter_server
