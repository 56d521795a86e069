// 32 bits per element: the sums as they are, int32 or float.

#include <cstring>

#include "base/aligned_buffer.hpp"
#include "engine/reduction/full_wire.hpp"

namespace mayfly::engine {
namespace {

using collectives::DataType;

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
    if (exact()) {  // the totals ride in front of the last bucket
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

}  // namespace

std::unique_ptr<GradientWire> make_word_wire(const ReductionLayout& layout, bool exact,
                                             std::uint32_t microbatches) {
  return std::make_unique<WordWire>(layout, exact, microbatches);
}

}  // namespace mayfly::engine
