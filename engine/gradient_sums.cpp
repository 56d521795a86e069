#include "engine/gradient_sums.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"
#include "base/random.hpp"

namespace mayfly::engine {
namespace {

std::span<std::int32_t> as_int32(std::span<std::uint32_t> words) {
  return {reinterpret_cast<std::int32_t*>(words.data()), words.size()};
}

/// Adds and tells whether anything added was infinite or NaN.
bool add_floats(std::span<const float> from, float* to) {
  std::uint32_t worst = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    worst = std::max(worst, std::bit_cast<std::uint32_t>(from[i]) & 0x7f800000U);
    to[i] += from[i];
  }
  return worst == 0x7f800000U;
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

GradientSums::GradientSums(const ReductionLayout& layout, bool exact, std::uint32_t microbatches)
    : layout_(layout),
      exact_(exact),
      bits_(collectives::magnitude_bits(microbatches)),
      words_(layout.element_count()),
      observed_(layout.blocks().block_count(), collectives::kUnsetExponent),
      bucket_mutexes_(layout.buckets().size()) {}

void GradientSums::clear(std::span<const std::int32_t> exponents) {
  ENSURE(!exact_ || exponents.size() == layout_.blocks().block_count(), "one exponent per block");
  std::ranges::fill(words_.span(), 0U);
  std::ranges::fill(observed_, collectives::kUnsetExponent);
  exponents_.assign(exponents.begin(), exponents.end());
  if (bucket_mutexes_.size() != layout_.buckets().size()) {
    bucket_mutexes_ = std::vector<std::mutex>(layout_.buckets().size());
  }
  totals_ = {};
}

void GradientSums::add_bucket(std::size_t bucket, std::span<const float> vector) {
  ENSURE(vector.size() == layout_.element_count(), "a microbatch's vector has the layout's size");
  const std::lock_guard lock(bucket_mutexes_[bucket]);
  if (exact_) {
    add_exact(layout_.buckets()[bucket], vector);
  } else {
    add_plain(layout_.buckets()[bucket], vector);
  }
}

void GradientSums::add_exact(const ReductionLayout::Bucket& bucket, std::span<const float> vector) {
  StepTotals flags;
  const std::span<std::int32_t> sums = as_int32(words_.span());
  for (std::size_t b = bucket.first_block; b < bucket.last_block; ++b) {
    const std::size_t first = layout_.blocks().offset(b);
    const std::size_t size = layout_.blocks().size(b);
    std::int32_t observed = collectives::kUnsetExponent;
    const collectives::QuantizeResult result = collectives::quantize_add(
        vector.subspan(first, size), exponents_[b], bits_, sums.subspan(first, size), observed);
    flags.overflows += result.overflow ? 1 : 0;
    flags.nonfinite += result.nonfinite ? 1 : 0;
    observed_[b] = std::max(observed_[b], observed);
  }
  add_totals(flags);
}

void GradientSums::add_plain(const ReductionLayout::Bucket& bucket, std::span<const float> vector) {
  StepTotals flags;
  auto* sums = reinterpret_cast<float*>(words_.data());
  if (add_floats(vector.subspan(bucket.first, bucket.last - bucket.first), sums + bucket.first)) {
    flags.nonfinite = 1;
  }
  add_totals(flags);
}

void GradientSums::add_totals(const StepTotals& totals) {
  const std::lock_guard lock(totals_mutex_);
  totals_.overflows += totals.overflows;
  totals_.nonfinite += totals.nonfinite;
  totals_.samples += totals.samples;
  totals_.correct += totals.correct;
  for (std::size_t lane = 0; lane < totals.sample_hash.size(); ++lane) {
    totals_.sample_hash[lane] += totals.sample_hash[lane];
  }
}

StepTotals GradientSums::totals() const {
  const std::lock_guard lock(totals_mutex_);
  return totals_;
}

}  // namespace mayfly::engine
