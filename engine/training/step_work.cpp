#include "engine/training/step_work.hpp"

#include <utility>

#include "engine/training/member_checks.hpp"

namespace mayfly::engine {

void StepWork::begin_view() {
  prefetched_ = {};
  loader_.cancel_requests();
}

void StepWork::begin() {
  pool_.begin_step(value(step_), state_.on_host(), exponents_, audited());
}

void StepWork::compute(Step step, const elastic::MicrobatchSet& share,
                       const std::vector<std::int32_t>& exponents, std::size_t bucket_elements) {
  const bool keep = step_ == step && held_.minus(share).empty();
  if (!keep) {
    pool_.discard();
    step_ = step;
    attempt_ = 0;
    held_ = {};
    exponents_ = exponents;
    layout_.cut_buckets(bucket_elements);  // no thread reads it: the pool is idle
    begin();
  }
  const std::vector<std::uint32_t> missing = share.minus(held_).list();
  if (prefetched_ < step) {
    loader_.request(value(step), missing);
    prefetched_ = step;
  }
  pool_.add_microbatches(missing);
  held_ = share;
}

bool StepWork::may_begin(Step step, const elastic::MicrobatchSet& share) const {
  const bool goes_on = step_ == step && held_.minus(share).empty();
  return attempt_ == 0 && (step_ == Step{} || goes_on);
}

void StepWork::prefetch(Step step, const elastic::MicrobatchSet& share) {
  if (prefetched_ < step && value(step) <= job_.total_steps) {
    loader_.request(value(step), share.list());
    prefetched_ = step;
  }
}

void StepWork::try_again(std::vector<std::int32_t> exponents) {
  exponents_ = std::move(exponents);
  ++attempt_;
  begin();
  held_ = {};
  prefetched_ = {};  // its images are needed again
}

void StepWork::discard() {
  pool_.discard();
  step_ = {};
}

void StepWork::drop_queued() {
  pool_.drop_queued();
  step_ = {};
}

std::uint32_t StepWork::finish() {
  step_ = {};
  held_ = {};
  return std::exchange(attempt_, 0) + 1;
}

elastic::MicrobatchSet StepWork::held_for(Step step) const {
  return step_ == step && attempt_ == 0 ? held_ : elastic::MicrobatchSet{};
}

std::optional<std::uint32_t> StepWork::audited() const {
  return audited_microbatch(step_, job_.config.audit_every, job_.config.seed, job_.microbatches);
}

}  // namespace mayfly::engine
