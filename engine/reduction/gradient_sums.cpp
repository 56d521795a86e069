#include "engine/reduction/gradient_sums.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"
#include "base/random.hpp"

namespace mayfly::engine {
namespace {

using collectives::Accumulate;

std::span<std::int32_t> as_int32(std::span<std::uint32_t> words) {
  return {reinterpret_cast<std::int32_t*>(words.data()), words.size()};
}

constexpr std::uint32_t kInfinityBits = 0x7f800000U;

/// Limits a count, which may exceed 2^31 if all blocks of all microbatches of a large step are
/// counted.
std::int32_t count_of(std::int64_t blocks) {
  return static_cast<std::int32_t>(std::min<std::int64_t>(blocks, StepTotals::kBlocksCounted));
}

/// Adds, and returns whether an added value was infinite or NaN.
bool add_floats(std::span<const float> from, float* to) {
  std::uint32_t worst = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    worst = std::max(worst, std::bit_cast<std::uint32_t>(from[i]) & kInfinityBits);
    to[i] += from[i];
  }
  return worst == kInfinityBits;
}

/// The same as add_floats() to a sum that is zero, without reading it.
bool store_floats(std::span<const float> from, float* to) {
  std::uint32_t worst = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    worst = std::max(worst, std::bit_cast<std::uint32_t>(from[i]) & kInfinityBits);
    to[i] = 0.0F + from[i];  // -0 becomes +0, as if it were added
  }
  return worst == kInfinityBits;
}

}  // namespace

void StepTotals::add_sample(std::uint64_t sample_id) {
  const std::uint64_t low = mix64(sample_id);
  const std::uint64_t high = mix64(low ^ sample_id);
  sample_hash[0] += static_cast<std::uint32_t>(low);
  sample_hash[1] += static_cast<std::uint32_t>(low >> 32);
  sample_hash[2] += static_cast<std::uint32_t>(high);
  sample_hash[3] += static_cast<std::uint32_t>(high >> 32);
  ++samples;
}

GradientSums::GradientSums(const ReductionLayout& layout, Wire wire, std::uint32_t microbatches,
                           std::uint64_t seed)
    : layout_(layout),
      wire_(wire),
      bits_(collectives::magnitude_bits(microbatches)),
      seed_(seed),
      first_parameter_block_(layout.first_parameter_block()),
      words_(layout.element_count()),
      observed_(layout.blocks().block_count(), collectives::kUnsetExponent),
      buckets_(layout.buckets().size()) {}

void GradientSums::keep_on(collectives::DeviceSums& device) {
  ENSURE(wire_ == Wire::kInt32 || wire_ == Wire::kFp32, "32 bits per element on a device");
  device_ = &device;
}

/// The part of a bucket whose sums are in words_.
ReductionLayout::Bucket GradientSums::words_of(std::size_t bucket) const {
  return device_ == nullptr ? layout_.buckets()[bucket] : layout_.host_part(bucket);
}

void GradientSums::clear(std::span<const std::int32_t> exponents, std::uint64_t step) {
  ENSURE(!is_exact(wire_) || exponents.size() == layout_.blocks().block_count(),
         "one exponent per block");
  std::ranges::fill(observed_, collectives::kUnsetExponent);
  exponents_.assign(exponents.begin(), exponents.end());
  step_ = step;
  if (buckets_.size() != layout_.buckets().size()) {
    buckets_ = std::vector<BucketState>(layout_.buckets().size());
  }
  for (BucketState& bucket : buckets_) {
    bucket.empty = true;
  }
  totals_ = {};
  on_device_ = {};
  if (device_ != nullptr) {
    device_->clear(is_exact(wire_) ? std::span(exponents_).subspan(first_parameter_block_)
                                   : std::span<const std::int32_t>(),
                   buckets_.size());
  }
}

void GradientSums::add_bucket(std::size_t bucket, std::span<const float> vector,
                              std::uint32_t microbatch) {
  ENSURE(vector.size() == layout_.element_count(), "a microbatch's vector has the layout's size");
  const std::lock_guard lock(buckets_[bucket].mutex);
  const Accumulate mode = buckets_[bucket].empty ? Accumulate::kStore : Accumulate::kAdd;
  buckets_[bucket].empty = false;
  if (device_ != nullptr) {
    device_->add(bucket, layout_.device_blocks(bucket), mode == Accumulate::kStore);
  }
  const ReductionLayout::Bucket words = words_of(bucket);
  if (words.first == words.last) {
    return;
  }
  if (is_exact(wire_)) {
    add_exact(words, vector, microbatch, mode);
  } else {
    add_plain(words, vector, mode);
  }
}

void GradientSums::settle(std::size_t bucket) {
  {
    const ReductionLayout::Bucket range = words_of(bucket);
    const std::lock_guard lock(buckets_[bucket].mutex);
    if (buckets_[bucket].empty) {
      std::ranges::fill(words_.span().subspan(range.first, range.last - range.first), 0U);
      if (device_ != nullptr) {
        device_->settle(bucket, layout_.device_blocks(bucket));
      }
      buckets_[bucket].empty = false;
    }
  }
  if (device_ != nullptr && bucket + 1 == buckets_.size()) {
    find_on_device();
  }
}

/// Reads the counts of the device. They cover the whole step so far, so they replace the result of
/// an earlier call.
void GradientSums::find_on_device() {
  const collectives::SumFindings found = device_->find();
  std::ranges::copy(found.observed,
                    observed_.begin() + static_cast<std::ptrdiff_t>(first_parameter_block_));
  const std::lock_guard lock(totals_mutex_);
  on_device_.overflows = count_of(found.overflows);
  on_device_.nonfinite = count_of(found.nonfinite);
}

collectives::QuantizeResult GradientSums::add_block(std::size_t block, std::span<const float> part,
                                                    collectives::RoundingKey key, Accumulate mode) {
  const std::size_t first = layout_.blocks().offset(block);
  const std::span<std::int32_t> sums = as_int32(words_.span()).subspan(first, part.size());
  std::int32_t observed = collectives::kUnsetExponent;
  const bool wrapped = wire_ == Wire::kInt16 && block >= first_parameter_block_;
  const collectives::QuantizeResult result =
      wrapped ? collectives::round_add(part, exponents_[block], bits_, key,
                                       static_cast<std::uint32_t>(first), mode, sums, observed)
              : collectives::quantize_add(part, exponents_[block], bits_, sums, observed, mode);
  observed_[block] = std::max(observed_[block], observed);
  return result;
}

void GradientSums::add_exact(const ReductionLayout::Bucket& bucket, std::span<const float> vector,
                             std::uint32_t microbatch, Accumulate mode) {
  StepTotals flags;
  const collectives::RoundingKey key = collectives::rounding_key(seed_, step_, microbatch);
  for (std::size_t b = bucket.first_block; b < bucket.last_block; ++b) {
    const std::span<const float> part =
        vector.subspan(layout_.blocks().offset(b), layout_.blocks().size(b));
    const collectives::QuantizeResult result = add_block(b, part, key, mode);
    flags.overflows += result.overflow ? 1 : 0;
    flags.nonfinite += result.nonfinite ? 1 : 0;
  }
  add_totals(flags);
}

void GradientSums::add_plain(const ReductionLayout::Bucket& bucket, std::span<const float> vector,
                             Accumulate mode) {
  StepTotals flags;
  auto* sums = reinterpret_cast<float*>(words_.data());
  const std::span<const float> part = vector.subspan(bucket.first, bucket.last - bucket.first);
  if (mode == Accumulate::kStore ? store_floats(part, sums + bucket.first)
                                 : add_floats(part, sums + bucket.first)) {
    flags.nonfinite = 1;
  }
  add_totals(flags);
}

void GradientSums::add_totals(const StepTotals& totals) {
  const std::lock_guard lock(totals_mutex_);
  totals_.overflows = count_of(std::int64_t{totals_.overflows} + totals.overflows);
  totals_.nonfinite = count_of(std::int64_t{totals_.nonfinite} + totals.nonfinite);
  totals_.samples += totals.samples;
  totals_.correct += totals.correct;
  for (std::size_t lane = 0; lane < totals.sample_hash.size(); ++lane) {
    totals_.sample_hash[lane] += totals.sample_hash[lane];
  }
}

StepTotals GradientSums::totals() const {
  const std::lock_guard lock(totals_mutex_);
  StepTotals all = totals_;
  all.overflows = count_of(std::int64_t{all.overflows} + on_device_.overflows);
  all.nonfinite = count_of(std::int64_t{all.nonfinite} + on_device_.nonfinite);
  return all;
}

}  // namespace mayfly::engine
