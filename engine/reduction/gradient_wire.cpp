#include "engine/reduction/gradient_wire.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/aligned_buffer.hpp"
#include "base/check.hpp"
#include "collectives/plan/half_floats.hpp"

namespace mayfly::engine {
namespace {

using collectives::BlockCheck;
using collectives::DataType;
using collectives::WrappedTotal;

/// Words in front of the vector that carry StepTotals. Eight are used; the others keep the vector
/// aligned.
constexpr std::size_t kTotalsWords = 16;

using StepWords = std::array<std::uint32_t, sizeof(StepTotals) / sizeof(std::uint32_t)>;
static_assert(sizeof(StepTotals) <= kTotalsWords * sizeof(std::uint32_t));

void put_totals(const StepTotals& totals, std::span<std::uint32_t> words) {
  std::ranges::copy(std::bit_cast<StepWords>(totals), words.begin());
}

StepTotals get_totals(std::span<const std::uint32_t> words) {
  StepWords found{};
  std::copy_n(words.begin(), found.size(), found.begin());
  return std::bit_cast<StepTotals>(found);
}

/// 32 bits per element, reduced in the memory of the host or of a GPU. The sums are sent unchanged,
/// as integers with the step's exponents or as floats.
class FullWire : public GradientWire {
 public:
  void begin_view(std::uint32_t /*members*/) final {}

  void mean(std::size_t block, std::span<const std::int32_t> exponents, float scale,
            std::span<float> out) const final {
    const std::uint32_t* const sums = reduced(block);
    if (exact_) {
      const auto* const integers = reinterpret_cast<const std::int32_t*>(sums);
      collectives::dequantize({integers, out.size()}, exponents[block], bits_, scale, out);
      return;
    }
    const auto* const floats = reinterpret_cast<const float*>(sums);
    std::transform(floats, floats + out.size(), out.begin(),
                   [scale](float x) { return x * scale; });
  }

  std::int32_t next_exponent(Step step, std::size_t /*block*/, std::int32_t exponent,
                             std::int32_t largest) const final {
    return collectives::next_exponent(exponent, largest, collectives::decay_after(value(step)));
  }
  std::int32_t raised_exponent(std::size_t /*block*/, std::int32_t exponent,
                               std::int32_t largest) const final {
    return std::max(exponent,
                    collectives::next_exponent(exponent, largest, collectives::Decay::kNo));
  }

 protected:
  /// `microbatches`: of a step, all members together. `layout` outlives the wire.
  FullWire(const ReductionLayout& layout, bool exact, std::uint32_t microbatches)
      : layout_(layout), exact_(exact), bits_(collectives::magnitude_bits(microbatches)) {}

  /// A block's words after the all-reduce, on the host.
  [[nodiscard]] virtual const std::uint32_t* reduced(std::size_t block) const = 0;

  [[nodiscard]] const ReductionLayout& layout() const { return layout_; }
  [[nodiscard]] bool exact() const { return exact_; }
  [[nodiscard]] collectives::DataType type() const {
    return exact_ ? collectives::DataType::kInt32 : collectives::DataType::kFloat32;
  }

 private:
  const ReductionLayout& layout_;
  bool exact_;
  int bits_;
};

/// 32 bits per element, reduced in the memory of the host.
class WordWire final : public FullWire {
 public:
  WordWire(const ReductionLayout& layout, bool exact, std::uint32_t microbatches)
      : FullWire(layout, exact, microbatches), buffer_(kTotalsWords + layout.element_count()) {}

  WireMessages pack(std::size_t bucket, const GradientSums& sums) override {
    const ReductionLayout::Bucket& range = layout().buckets()[bucket];
    const std::size_t size = range.last - range.first;
    std::memcpy(vector() + range.first, sums.words().data() + range.first,
                size * sizeof(std::uint32_t));
    WireMessages messages;
    if (bucket + 1 < layout().buckets().size()) {
      messages.add(vector() + range.first, size, type());
      return messages;
    }
    put_totals(sums.totals(), buffer_.span());
    if (exact()) {  // the totals are in front of the last bucket
      messages.add(buffer_.data(), kTotalsWords + size, DataType::kInt32);
    } else {
      messages.add(buffer_.data(), kTotalsWords, DataType::kInt32);
      messages.add(vector(), size, DataType::kFloat32);
    }
    return messages;
  }

  void arrived(std::size_t /*bucket*/) override {}

  StepTotals totals(std::span<const std::int32_t> /*exponents*/,
                    std::span<const std::int32_t> /*largest*/) override {
    return get_totals(buffer_.span());
  }

 private:
  [[nodiscard]] const std::uint32_t* reduced(std::size_t block) const override {
    return buffer_.data() + kTotalsWords + layout().blocks().offset(block);
  }
  std::uint32_t* vector() { return buffer_.data() + kTotalsWords; }

  AlignedBuffer<std::uint32_t> buffer_;  // totals, then the vector
};

/// 32 bits per element, reduced in the memory of a GPU. The sums of parameters' gradients are
/// there, and the group's part on the device reduces copies of them. The result stays there, unless
/// a member without a state on the device needs it. Totals, loss and statistics are few and in host
/// memory: they are reduced there, after the last bucket.
class DeviceWire final : public FullWire {
 public:
  DeviceWire(const ReductionLayout& layout, bool exact, std::uint32_t microbatches,
             collectives::DeviceSums& device)
      : FullWire(layout, exact, microbatches),
        first_block_(layout.first_parameter_block()),
        device_(device),
        head_(kTotalsWords + layout.parameters_offset()) {}

  WireMessages pack(std::size_t bucket, const GradientSums& sums) override {
    const std::span<std::uint32_t> copy = device_.stage(bucket, layout().device_blocks(bucket));
    WireMessages messages;
    messages.add({.data = copy.data(),
                  .count = copy.size(),
                  .type = type(),
                  .on_device = true,
                  .behind = device_.staging_stream()});
    if (bucket + 1 < layout().buckets().size()) {
      return messages;
    }
    const std::size_t head = layout().parameters_offset();
    put_totals(sums.totals(), head_.span());
    std::memcpy(head_.data() + kTotalsWords, sums.words().data(), head * sizeof(std::uint32_t));
    if (exact()) {
      messages.add(head_.data(), kTotalsWords + head, DataType::kInt32);
    } else {
      messages.add(head_.data(), kTotalsWords, DataType::kInt32);
      messages.add(head_.data() + kTotalsWords, head, DataType::kFloat32);
    }
    return messages;
  }

  void arrived(std::size_t /*bucket*/) override {}

  void fetch_sums() override {
    for (std::size_t b = 0; b < layout().buckets().size(); ++b) {
      device_.fetch(layout().device_blocks(b));
    }
    device_.wait_until_fetched();
  }

  StepTotals totals(std::span<const std::int32_t> /*exponents*/,
                    std::span<const std::int32_t> /*largest*/) override {
    return get_totals(head_.span());
  }

 private:
  [[nodiscard]] const std::uint32_t* reduced(std::size_t block) const override {
    const std::size_t first = layout().blocks().offset(block);
    return block < first_block_ ? head_.data() + kTotalsWords + first
                                : device_.fetched().data() + (first - layout().parameters_offset());
  }

  std::size_t first_block_;  // of the parameters
  collectives::DeviceSums& device_;
  AlignedBuffer<std::uint32_t> head_;  // totals, loss, statistics
};

// Half of fp16's range, so that rounding during the all-reduce cannot make a sum infinite either.
constexpr float kFp16SumMax = 32768.0F;
constexpr std::size_t kChunk = collectives::kBlockElements;

/// bf16 or fp16 for the gradients of parameters, with error feedback: the worker keeps the part of
/// an element that rounding removed, and adds it to the element's sum in the next step. A change of
/// view drops this residual, because the step that it came from may be packed again. Loss and
/// statistics are sent as floats.
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
    // So the sum over all members cannot exceed fp16. The part that is cut off stays in the
    // residual.
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
    const StepTotals found = get_totals(head_.span());
    if (found.nonfinite > 0) {  // the step makes no update, so its residual must not be used
      std::ranges::fill(residual_.span(), 0.0F);
    }
    return found;
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

constexpr std::size_t kCheckWords = sizeof(BlockCheck) / sizeof(std::uint32_t);

/// int16 for the gradients of parameters: sums modulo 2^16 with checks
/// (collectives/plan/wrapped_sum). Totals, loss, statistics and the checks are sent as int32, in
/// front of the last bucket.
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

  // Every member computes this from the same numbers, so all agree which blocks overflowed.
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
      // There is no larger exponent: the sum itself exceeds the range of a float.
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

  // The exponent may fall in every step, because 16 bits leave few digits if it is too large.
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
  std::vector<bool> overflowed_;        // per block of the parameters
  AlignedBuffer<std::uint32_t> head_;   // totals, loss, statistics, checks
  AlignedBuffer<std::int16_t> shorts_;  // parameters
};

}  // namespace

std::unique_ptr<GradientWire> make_gradient_wire(Wire wire, const ReductionLayout& layout,
                                                 std::uint32_t microbatches,
                                                 collectives::DeviceSums* device) {
  if (device != nullptr) {
    ENSURE(wire == Wire::kInt32 || wire == Wire::kFp32, "32 bits per element on a device");
    return std::make_unique<DeviceWire>(layout, is_exact(wire), microbatches, *device);
  }
  switch (wire) {
    case Wire::kInt32:
    case Wire::kFp32: return std::make_unique<WordWire>(layout, is_exact(wire), microbatches);
    case Wire::kBf16: return std::make_unique<HalfWire>(layout, true);
    case Wire::kFp16: return std::make_unique<HalfWire>(layout, false);
    case Wire::kInt16: return std::make_unique<WrappedWire>(layout, microbatches);
  }
  UNREACHABLE("a Wire outside its enumerators");
}

}  // namespace mayfly::engine
