// 32 bits per element, in the memory of a GPU: the sums of parameters' gradients are there, and
// their copies go through the group's part on the device. There they stay, unless somebody who has
// no state on the device wants them. Totals, loss and statistics are few and known to the host:
// they travel in host memory, behind the last bucket.

#include <cstring>

#include "base/aligned_buffer.hpp"
#include "engine/reduction/full_wire.hpp"

namespace mayfly::engine {
namespace {

using collectives::DataType;

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

}  // namespace

std::unique_ptr<GradientWire> make_device_wire(const ReductionLayout& layout, bool exact,
                                               std::uint32_t microbatches,
                                               collectives::DeviceSums& device) {
  return std::make_unique<DeviceWire>(layout, exact, microbatches, device);
}

}  // namespace mayfly::engine
