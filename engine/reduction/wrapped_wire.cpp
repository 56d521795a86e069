// int16 for the gradients of parameters: sums modulo 2^16 with checks
// (collectives/plan/wrapped_sum). Totals, loss, statistics and the checks travel as int32, in front
// of the last bucket.

#include <algorithm>
#include <cstring>

#include "base/aligned_buffer.hpp"
#include "engine/reduction/gradient_wire.hpp"

namespace mayfly::engine {
namespace {

using collectives::BlockCheck;
using collectives::DataType;
using collectives::WrappedTotal;

constexpr std::size_t kCheckWords = sizeof(BlockCheck) / sizeof(std::uint32_t);

class WrappedWire final : public GradientWire {
 public:
  WrappedWire(const ReductionLayout& layout, std::uint32_t microbatches)
      : layout_(layout),
        microbatches_(microbatches),
        bits_(collectives::magnitude_bits(microbatches)),
        offset_(layout.parameters_offset()),
        first_block_(layout.blocks().first_block_at(offset_)),
        found_(layout.blocks().block_count() - first_block_),
        overflowed_(found_.size()),
        head_(kTotalsWords + offset_ + kCheckWords * found_.size()),
        shorts_(layout.element_count() - offset_) {}

  void begin_view(std::uint32_t /*members*/) override {}

  WireMessages pack(std::size_t bucket, const GradientSums& sums) override {
    const ReductionLayout::Bucket& range = layout_.buckets()[bucket];
    const bool last = bucket + 1 == layout_.buckets().size();
    const std::size_t first = last ? offset_ : range.first;
    const auto* words = reinterpret_cast<const std::int32_t*>(sums.words().data());
    for (std::size_t b = first_block_of(bucket); b < range.last_block; ++b) {
      const std::span<std::int16_t> wire = shorts_of(b);
      const BlockCheck check =
          collectives::pack_wrapped({words + layout_.blocks().offset(b), wire.size()}, wire);
      check_words(b)[0] = check.linear;
      check_words(b)[1] = check.mixed;
    }
    WireMessages messages;
    messages.add(shorts_.data() + (first - offset_), range.last - first, DataType::kInt16);
    if (last) {
      put_totals(sums.totals(), head_.span());
      std::memcpy(head_.data() + kTotalsWords, words, offset_ * sizeof(std::int32_t));
      messages.add(head_.data(), head_.size(), DataType::kInt32);
    }
    return messages;
  }

  void arrived(std::size_t bucket) override {
    for (std::size_t b = first_block_of(bucket); b < layout_.buckets()[bucket].last_block; ++b) {
      found_[b - first_block_] = collectives::inspect_wrapped(shorts_of(b));
    }
  }

  // Every member does this with the same numbers, so all agree which blocks overflowed.
  StepTotals totals(std::span<const std::int32_t> exponents,
                    std::span<const std::int32_t> largest) override {
    StepTotals totals = get_totals(head_.span());
    totals.overflows = 0;
    for (std::size_t b = 0; b < first_block_; ++b) {
      totals.overflows += largest[b] > exponents[b] ? 1 : 0;
    }
    for (std::size_t b = first_block_; b < layout_.blocks().block_count(); ++b) {
      const bool overflowed =
          collectives::too_large_to_round(largest[b], exponents[b], bits_) || wrapped(b);
      overflowed_[b - first_block_] = overflowed;
      totals.overflows += overflowed ? 1 : 0;
      // There is no larger exponent to try: the sum itself is out of a float's range.
      totals.nonfinite += overflowed && exponents[b] == collectives::kExponentMax ? 1 : 0;
    }
    return totals;
  }

  void mean(std::size_t block, std::span<const std::int32_t> exponents, float scale,
            std::span<float> out) const override {
    if (block < first_block_) {
      const std::uint32_t* sums = head_.data() + kTotalsWords + layout_.blocks().offset(block);
      collectives::dequantize({reinterpret_cast<const std::int32_t*>(sums), out.size()},
                              exponents[block], bits_, scale, out);
      return;
    }
    const std::size_t first = layout_.blocks().offset(block) - offset_;
    collectives::dequantize_wrapped(shorts_.span().subspan(first, out.size()), exponents[block],
                                    scale, out);
  }

  // With 16 bits a block cannot afford to be coarse for long: its exponent may fall in every step.
  std::int32_t next_exponent(Step step, std::size_t block, std::int32_t exponent,
                             std::int32_t largest) const override {
    if (block < first_block_) {
      return collectives::next_exponent(exponent, largest, collectives::decay_after(value(step)));
    }
    const std::uint32_t magnitude = found_[block - first_block_].largest;
    return collectives::next_exponent(exponent, collectives::observed_total(magnitude, exponent),
                                      collectives::Decay::kByOne,
                                      collectives::kWrappedHeadroomBits);
  }

  std::int32_t raised_exponent(std::size_t block, std::int32_t exponent,
                               std::int32_t largest) const override {
    if (block < first_block_) {
      return std::max(exponent,
                      collectives::next_exponent(exponent, largest, collectives::Decay::kNo));
    }
    if (!overflowed_[block - first_block_]) {
      return exponent;
    }
    const std::int32_t safe = collectives::safe_exponent(largest, microbatches_);
    return std::min(std::max(exponent + 1, safe), collectives::kExponentMax);
  }

 private:
  [[nodiscard]] std::size_t first_block_of(std::size_t bucket) const {
    return std::max(first_block_, layout_.buckets()[bucket].first_block);
  }
  std::span<std::int16_t> shorts_of(std::size_t block) {
    return shorts_.span().subspan(layout_.blocks().offset(block) - offset_,
                                  layout_.blocks().size(block));
  }
  std::uint32_t* check_words(std::size_t block) {
    return head_.data() + kTotalsWords + offset_ + kCheckWords * (block - first_block_);
  }
  bool wrapped(std::size_t block) {
    const BlockCheck expected{check_words(block)[0], check_words(block)[1]};
    return found_[block - first_block_].check != expected;
  }

  const ReductionLayout& layout_;
  std::uint32_t microbatches_;
  int bits_;
  std::size_t offset_;                  // of the parameters in the vector
  std::size_t first_block_;             // of the parameters
  std::vector<WrappedTotal> found_;     // per block of the parameters
  std::vector<bool> overflowed_;        // the same
  AlignedBuffer<std::uint32_t> head_;   // totals, loss, statistics, checks
  AlignedBuffer<std::int16_t> shorts_;  // parameters
};

}  // namespace

std::unique_ptr<GradientWire> make_wrapped_wire(const ReductionLayout& layout,
                                                std::uint32_t microbatches) {
  return std::make_unique<WrappedWire>(layout, microbatches);
}

}  // namespace mayfly::engine
