#pragma once

// The step that this worker computes: which microbatches are in its sums, or will be soon, and with
// which exponents. The sums outlive a view: a step that is interrupted by the loss of a member is
// continued in the next view from the sums that each member holds (gradient_sums.hpp). Trainer
// thread only.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "datasets/feed.hpp"
#include "elastic/core/view.hpp"
#include "engine/job/job.hpp"
#include "engine/reduction/reduction_layout.hpp"
#include "engine/training/computer.hpp"

namespace mayfly::engine {

class StepWork {
 public:
  /// All arguments outlive it; `feed` may be null. Only this class cuts `layout` into buckets,
  /// between steps.
  StepWork(const Job& job, ReductionLayout& layout, datasets::Feed* feed, Computer& computer)
      : job_(job), layout_(layout), feed_(feed), computer_(computer) {}

  /// Cancels requests to the feed that were made in the view before.
  void begin_view();
  /// Lets the compute threads work until the sums of `step` contain `share`. Sums that exist
  /// already are kept if they are of this step and contain only microbatches of the share;
  /// otherwise the step begins anew, quantised with `exponents`, in buckets of at least
  /// `bucket_elements` elements.
  void compute(Step step, const elastic::MicrobatchSet& share,
               const std::vector<std::int32_t>& exponents, std::size_t bucket_elements);
  /// Whether compute() could begin at once: no microbatch is being computed that has to be
  /// discarded first, which takes as long as computing it.
  [[nodiscard]] bool may_begin(Step step, const elastic::MicrobatchSet& share) const;
  /// Lets the feed prepare the samples of a later step.
  void prefetch(Step step, const elastic::MicrobatchSet& share);
  /// Gradients were too large for their exponents: computes the same step from the beginning.
  void try_again(std::vector<std::int32_t> exponents);
  /// Waits for the microbatches that are being computed and discards the step.
  void discard();
  /// The same without waiting; the state must stay unchanged until compute() or discard().
  void drop_queued();
  /// Discards the step, because the state with which it was begun is not that of the view any more.
  void forget() { step_ = {}; }
  /// The step is committed. Returns how often it was computed.
  std::uint32_t finish();

  [[nodiscard]] bool is_under_way() const { return step_ != Step{}; }
  [[nodiscard]] Step step() const { return step_; }
  /// Whether its exponents were raised after the members had agreed on others.
  [[nodiscard]] bool has_other_exponents() const { return attempt_ > 0; }
  /// Whether it has begun with buckets of another size.
  [[nodiscard]] bool has_other_buckets(std::size_t elements) const {
    return step_ != Step{} && bucket_elements_ != elements;
  }
  [[nodiscard]] const std::vector<std::int32_t>& exponents() const { return exponents_; }
  /// The microbatches in the sums of `step` that can be used in the next view.
  [[nodiscard]] elastic::MicrobatchSet held_for(Step step) const;
  /// The microbatch of the step that two members compute, to compare their results
  /// (member_checks.hpp).
  [[nodiscard]] std::optional<std::uint32_t> audited() const;

 private:
  void begin();
  void request(Step step, const std::vector<std::uint32_t>& microbatches);

  const Job& job_;
  ReductionLayout& layout_;
  datasets::Feed* feed_;  // null = none
  Computer& computer_;
  Step step_{};                          // 0 = none
  std::uint32_t attempt_ = 0;            // how often the exponents of step_ were raised
  elastic::MicrobatchSet held_;          // microbatches in the sums, or being computed
  std::vector<std::int32_t> exponents_;  // with which step_ is quantised
  std::size_t bucket_elements_ = 0;      // least size of the buckets of step_
  Step prefetched_{};                    // the last step that was requested from the feed
};

}  // namespace mayfly::engine
