// bf16 or fp16 for the gradients of parameters, with error feedback: what rounding took from an
// element stays with this worker and is added to the element's sum in the next step. A change of
// view drops it, because the step whose sums it was taken from may be packed again. Loss and
// statistics travel as floats.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/aligned_buffer.hpp"
#include "collectives/plan/half_floats.hpp"
#include "engine/reduction/gradient_wire.hpp"

namespace mayfly::engine {
namespace {

using collectives::DataType;

// Half of fp16's range, so that rounding on the way cannot make a sum infinite either.
constexpr float kFp16SumMax = 32768.0F;
constexpr std::size_t kChunk = collectives::kBlockElements;

class HalfWire final : public GradientWire {
 public:
  HalfWire(const ReductionLayout& layout, bool bfloat)
      : layout_(layout),
        bfloat_(bfloat),
        offset_(layout.parameters_offset()),
        head_(kTotalsWords + offset_),
        halves_(layout.element_count() - offset_),
        residual_(layout.element_count() - offset_) {}

  void begin_view(std::uint32_t members) override {
    std::ranges::fill(residual_.span(), 0.0F);
    // No sum of so many can leave fp16; what is cut off stays in the residual.
    limit_ = kFp16SumMax / static_cast<float>(members);
  }

  WireMessages pack(std::size_t bucket, const GradientSums& sums) override {
    const ReductionLayout::Bucket& range = layout_.buckets()[bucket];
    const bool last = bucket + 1 == layout_.buckets().size();
    const std::size_t first = last ? offset_ : range.first;
    const auto* words = reinterpret_cast<const float*>(sums.words().data());
    for (std::size_t i = first; i < range.last; i += kChunk) {
      pack_chunk({words + i, std::min(kChunk, range.last - i)}, i - offset_);
    }
    WireMessages messages;
    if (last) {
      put_totals(sums.totals(), head_.span());
      std::memcpy(head_.data() + kTotalsWords, words, offset_ * sizeof(float));
      messages.add(head_.data(), kTotalsWords, DataType::kInt32);
      messages.add(head_.data() + kTotalsWords, offset_, DataType::kFloat32);
    }
    messages.add(halves_.data() + (first - offset_), range.last - first,
                 bfloat_ ? DataType::kBFloat16 : DataType::kFloat16);
    return messages;
  }

  void arrived(std::size_t /*bucket*/) override {}

  StepTotals totals(std::span<const std::int32_t> /*exponents*/,
                    std::span<const std::int32_t> /*largest*/) override {
    return get_totals(head_.span());
  }

  void mean(std::size_t block, std::span<const std::int32_t> /*exponents*/, float scale,
            std::span<float> out) const override {
    const std::size_t first = layout_.blocks().offset(block);
    if (first < offset_) {
      std::memcpy(out.data(), head_.data() + kTotalsWords + first, out.size() * sizeof(float));
    } else {
      widen(halves_.span().subspan(first - offset_, out.size()), out);
    }
    for (float& x : out) {
      x *= scale;
    }
  }

  std::int32_t next_exponent(Step /*step*/, std::size_t /*block*/, std::int32_t exponent,
                             std::int32_t /*largest*/) const override {
    return exponent;
  }
  std::int32_t raised_exponent(std::size_t /*block*/, std::int32_t exponent,
                               std::int32_t /*largest*/) const override {
    return exponent;
  }

 private:
  void widen(std::span<const std::uint16_t> from, std::span<float> to) const {
    bfloat_ ? collectives::from_bf16(from, to) : collectives::from_fp16(from, to);
  }

  /// `at`: the chunk's place among the parameters.
  void pack_chunk(std::span<const float> sums, std::size_t at) {
    std::array<float, kChunk> wanted;
    std::array<float, kChunk> sent;
    const std::span<float> residual = residual_.span().subspan(at, sums.size());
    const std::span<std::uint16_t> halves = halves_.span().subspan(at, sums.size());
    for (std::size_t i = 0; i < sums.size(); ++i) {
      wanted[i] = sums[i] + residual[i];
      sent[i] = bfloat_ ? wanted[i] : std::clamp(wanted[i], -limit_, limit_);
    }
    const std::span<float> rounded = std::span(sent).first(sums.size());
    bfloat_ ? collectives::to_bf16(rounded, halves) : collectives::to_fp16(rounded, halves);
    widen(halves, rounded);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      // A step with an infinity or a NaN makes no update; nothing of it may stay here.
      const float left = wanted[i] - sent[i];
      residual[i] = std::isfinite(left) ? left : 0.0F;
    }
  }

  const ReductionLayout& layout_;
  bool bfloat_;
  std::size_t offset_;                   // of the parameters in the vector
  float limit_ = kFp16SumMax;            // of one member's value
  AlignedBuffer<std::uint32_t> head_;    // totals, loss and statistics
  AlignedBuffer<std::uint16_t> halves_;  // parameters
  AlignedBuffer<float> residual_;        // parameters
};

}  // namespace

std::unique_ptr<GradientWire> make_half_wire(const ReductionLayout& layout, bool bfloat) {
  return std::make_unique<HalfWire>(layout, bfloat);
}

}  // namespace mayfly::engine
