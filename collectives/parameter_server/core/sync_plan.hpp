#pragma once

// How the workers of a job with parameter servers keep step, and for which part of the job. Pure;
// no thread matters.
//
// The unit of everything is the slice: each step's global batch is cut into the same number of
// slices for the whole job, whoever is alive. Slice k belongs to step k / slices_per_step + 1; a
// worker computes the gradient of a whole slice and pushes it once.

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace mayfly::parameter_server {

enum class SyncKind : std::uint8_t {
  kBsp,     ///< an update is the mean of all slices of a step; everybody waits for it
  kAsp,     ///< every slice is an update; nobody waits
  kSsp,     ///< as kAsp, but a worker is at most `staleness` slices ahead of the slowest
  kBackup,  ///< an update is the mean of the first `needed` slices; later ones are dropped
};

struct SyncPolicy {
  SyncKind kind = SyncKind::kBsp;
  std::uint32_t staleness = 0;  ///< kSsp
  std::uint32_t needed = 0;     ///< kBackup: so many slices ...
  std::uint32_t workers = 0;    ///< ... of so many workers
  friend bool operator==(const SyncPolicy&, const SyncPolicy&) = default;
};

/// "bsp", "asp", "ssp:S" or "backup:N-of-M" with 1 <= N <= M; anything else is kInvalidInput.
[[nodiscard]] Result<SyncPolicy> parse_sync_policy(std::string_view text);
[[nodiscard]] std::string to_text(const SyncPolicy& policy);

/// A part of the job with one policy: the slices [first, last). Whole steps.
struct SyncPhase {
  SyncPolicy policy;
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  friend bool operator==(const SyncPhase&, const SyncPhase&) = default;
};

/// What a job is made of; equal on all its processes.
class SyncPlan {
 public:
  /// `phases` follow each other without a gap; at least one; none is empty. A kBackup phase needs a
  /// divisor of slices_per_step.
  SyncPlan(std::vector<SyncPhase> phases, std::uint32_t slices_per_step);

  /// The same with phases cut in two at each of these slices (first ones of a step) inside them.
  [[nodiscard]] SyncPlan cut_at(const std::set<std::uint64_t>& slices) const;

  [[nodiscard]] const std::vector<SyncPhase>& phases() const { return phases_; }
  [[nodiscard]] std::uint32_t slices_per_step() const { return slices_per_step_; }
  [[nodiscard]] std::uint64_t first_slice() const { return phases_.front().first; }
  [[nodiscard]] std::uint64_t last_slice() const { return phases_.back().last; }
  /// The phase of a slice in [first_slice(), last_slice()).
  [[nodiscard]] const SyncPhase& phase_of(std::uint64_t slice) const;
  /// Updates that parameters have had when exactly the slices before `slice` are in them: the
  /// number of their version. `slice` begins a phase, a round of kBsp, or the end.
  [[nodiscard]] std::uint64_t version_at(std::uint64_t slice) const;
  /// The first slice of the step that `slice` belongs to.
  [[nodiscard]] std::uint64_t round_of(std::uint64_t slice) const {
    return slice / slices_per_step_ * slices_per_step_;
  }

 private:
  std::vector<SyncPhase> phases_;
  std::uint32_t slices_per_step_;
};

/// How long a job is, for parse_phases().
struct JobLength {
  std::uint64_t first_step = 0;  ///< committed already
  std::uint64_t last_step = 1;
  std::uint32_t slices_per_step = 1;
  std::uint64_t samples_per_step = 1;
};

/// "POLICY[:AMOUNT],...", for example "bsp:6.25%,asp" or "ssp:2:400steps,bsp:51200samples,asp". An
/// amount is a share of the whole job, steps or samples, rounded to whole steps of at least one;
/// only the last phase may lack it, and has what is left, however much it asks for. Phases that a
/// resumed job has behind it are left out. kInvalidInput says what is wrong with which phase.
[[nodiscard]] Result<SyncPlan> parse_phases(std::string_view text, const JobLength& length);

/// What becomes of the learning rate of an update made of less than a global batch.
enum class RateRule : std::uint8_t {
  kLinear,  ///< times the share of the global batch
  kSqrt,    ///< times its square root
  kFixed,   ///< nothing
};
[[nodiscard]] Result<RateRule> parse_rate_rule(std::string_view text);
/// `share` in (0, 1].
[[nodiscard]] double rate_factor(RateRule rule, double share);

}  // namespace mayfly::parameter_server
