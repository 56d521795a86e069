#pragma once

// The step that this worker computes: which microbatches are in its sums, or on their way into
// them, and with which exponents. The sums outlive a view: a step that a lost member interrupts
// goes on in the next view from what each member holds (gradient_sums.hpp). Trainer thread only.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "datasets/loader.hpp"
#include "elastic/core/view.hpp"
#include "engine/job/job.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "engine/training/compute_pool.hpp"
#include "engine/training/state_keeper.hpp"

namespace mayfly::engine {

class StepWork {
 public:
  /// Everything outlives it. Only this cuts `layout`, between steps.
  StepWork(const Job& job, ReductionLayout& layout, datasets::Loader& loader, ComputePool& pool,
           const StateKeeper& state)
      : job_(job), layout_(layout), loader_(loader), pool_(pool), state_(state) {}

  /// What was asked of the loader for the view before is not wanted any more.
  void begin_view();
  /// Lets the compute threads work until the sums of `step` hold `share`. What they hold already is
  /// kept if it is of this step and all of it belongs to the share; otherwise the step begins anew,
  /// quantised with `exponents`, in buckets of so many elements.
  void compute(Step step, const elastic::MicrobatchSet& share,
               const std::vector<std::int32_t>& exponents, std::size_t bucket_elements);
  /// Whether compute() could begin at once: nothing that is being computed has to be thrown away
  /// first, which takes as long as a microbatch.
  [[nodiscard]] bool may_begin(Step step, const elastic::MicrobatchSet& share) const;
  /// Lets the loader prepare what a later step will need.
  void prefetch(Step step, const elastic::MicrobatchSet& share);
  /// Gradients were too large for their exponents: the same step, from the beginning.
  void try_again(std::vector<std::int32_t> exponents);
  /// Waits for what is being computed and forgets it.
  void discard();
  /// The same without waiting; the state must stay unchanged until compute() or discard().
  void drop_queued();
  /// The state that it was begun with is not that of the view any more.
  void forget() { step_ = {}; }
  /// The step is committed. Returns how often it was computed.
  std::uint32_t finish();

  [[nodiscard]] bool is_under_way() const { return step_ != Step{}; }
  [[nodiscard]] Step step() const { return step_; }
  /// It is not computed with the exponents that members agreed on before.
  [[nodiscard]] bool has_other_exponents() const { return attempt_ > 0; }
  [[nodiscard]] const std::vector<std::int32_t>& exponents() const { return exponents_; }
  /// What the sums of `step` hold for the next view.
  [[nodiscard]] elastic::MicrobatchSet held_for(Step step) const;
  /// The microbatch of the step that two members compute, to compare their results (audit.hpp).
  [[nodiscard]] std::optional<std::uint32_t> audited() const;

 private:
  void begin();

  const Job& job_;
  ReductionLayout& layout_;
  datasets::Loader& loader_;
  ComputePool& pool_;
  const StateKeeper& state_;
  Step step_{};                          // 0 = none
  std::uint32_t attempt_ = 0;            // how often its exponents were raised
  elastic::MicrobatchSet held_;          // in the sums, or on their way into them
  std::vector<std::int32_t> exponents_;  // that it is quantised with
  Step prefetched_{};                    // that was last requested from the loader
};

}  // namespace mayfly::engine
