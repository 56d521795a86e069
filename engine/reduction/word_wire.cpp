// 32 bits per element: the sums as they are, int32 or float.

#include <algorithm>
#include <cstring>

#include "base/aligned_buffer.hpp"
#include "engine/reduction/gradient_wire.hpp"

namespace mayfly::engine {
namespace {

using collectives::DataType;

class WordWire final : public GradientWire {
 public:
  WordWire(const ReductionLayout& layout, bool exact, std::uint32_t microbatches)
      : layout_(layout),
        exact_(exact),
        bits_(collectives::magnitude_bits(microbatches)),
        buffer_(kTotalsWords + layout.element_count()) {}

  void begin_view(std::uint32_t /*members*/) override {}

  WireMessages pack(std::size_t bucket, const GradientSums& sums) override {
    const ReductionLayout::Bucket& range = layout_.buckets()[bucket];
    const std::size_t size = range.last - range.first;
    std::memcpy(vector() + range.first, sums.words().data() + range.first,
                size * sizeof(std::uint32_t));
    WireMessages messages;
    if (bucket + 1 < layout_.buckets().size()) {
      messages.add(vector() + range.first, size, exact_ ? DataType::kInt32 : DataType::kFloat32);
      return messages;
    }
    put_totals(sums.totals(), buffer_.span());
    if (exact_) {  // the totals ride in front of the last bucket
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

  void mean(std::size_t block, std::span<const std::int32_t> exponents, float scale,
            std::span<float> out) const override {
    const std::uint32_t* sums = buffer_.data() + kTotalsWords + layout_.blocks().offset(block);
    mean_of_words({sums, out.size()}, exact_ ? &exponents[block] : nullptr, bits_, scale, out);
  }

  std::int32_t next_exponent(std::size_t /*block*/, std::int32_t exponent,
                             std::int32_t largest) const override {
    return collectives::next_exponent(exponent, largest);
  }
  std::int32_t raised_exponent(std::size_t /*block*/, std::int32_t exponent,
                               std::int32_t largest) const override {
    return std::max(exponent, collectives::next_exponent(exponent, largest));
  }

 private:
  std::uint32_t* vector() { return buffer_.data() + kTotalsWords; }

  const ReductionLayout& layout_;
  bool exact_;
  int bits_;
  AlignedBuffer<std::uint32_t> buffer_;  // totals, then the vector
};

}  // namespace

std::unique_ptr<GradientWire> make_word_wire(const ReductionLayout& layout, bool exact,
                                             std::uint32_t microbatches) {
  return std::make_unique<WordWire>(layout, exact, microbatches);
}

}  // namespace mayfly::engine
