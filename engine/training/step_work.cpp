#include "engine/training/step_work.hpp"

#include <utility>

#include "engine/training/member_checks.hpp"

namespace mayfly::engine {

void StepWork::begin_view() {
  prefetched_ = {};
  if (feed_ != nullptr) {
    feed_->cancel_requests();
  }
}

void StepWork::begin() {
  computer_.begin_step(value(step_), exponents_, audited());
}

void StepWork::compute(Step step, const elastic::MicrobatchSet& share,
                       const std::vector<std::int32_t>& exponents, std::size_t bucket_elements) {
  const bool keep = step_ == step && held_.minus(share).empty();
  if (!keep) {
    computer_.discard();
    step_ = step;
    attempt_ = 0;
    held_ = {};
    exponents_ = exponents;
    bucket_elements_ = bucket_elements;
    layout_.cut_buckets(bucket_elements);  // no thread reads it: the computer is idle
    begin();
  }
  const std::vector<std::uint32_t> missing = share.minus(held_).list();
  if (prefetched_ < step) {
    request(step, missing);
  }
  computer_.add_microbatches(missing);
  held_ = share;
}

void StepWork::request(Step step, const std::vector<std::uint32_t>& microbatches) {
  if (feed_ != nullptr) {
    feed_->request(value(step), microbatches);
  }
  prefetched_ = step;
}

bool StepWork::may_begin(Step step, const elastic::MicrobatchSet& share) const {
  const bool goes_on = step_ == step && held_.minus(share).empty();
  return attempt_ == 0 && (step_ == Step{} || goes_on);
}

void StepWork::prefetch(Step step, const elastic::MicrobatchSet& share) {
  if (prefetched_ < step && value(step) <= job_.total_steps) {
    request(step, share.list());
  }
}

void StepWork::try_again(std::vector<std::int32_t> exponents) {
  exponents_ = std::move(exponents);
  ++attempt_;
  begin();
  held_ = {};
  prefetched_ = {};  // the samples of this step are needed again
}

void StepWork::discard() {
  computer_.discard();
  step_ = {};
}

void StepWork::drop_queued() {
  computer_.drop_queued();
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
