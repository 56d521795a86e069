#pragma once

// What a worker's sums become on their way through the all-reduce, and what comes back becomes a
// mean gradient: one adapter per --wire. The buffers of the all-reduce live here, apart from the
// worker's own sums. Trainer thread only.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/nccl/device_sums.hpp"
#include "collectives/plan/types.hpp"
#include "engine/config/derived_settings.hpp"
#include "engine/reduction/gradient_sums.hpp"
#include "engine/reduction/reduction_layout.hpp"

namespace mayfly::engine {

/// One all-reduce (sum) in place.
struct WireMessage {
  void* data = nullptr;
  std::size_t count = 0;
  collectives::DataType type = collectives::DataType::kInt32;
  bool on_device = false;                      ///< through the group's part on the device
  collectives::DeviceStream behind = nullptr;  ///< on_device only: what the operation follows
};

/// The messages of one bucket, in order.
struct WireMessages {
  std::array<WireMessage, 3> list;
  std::size_t count = 0;

  void add(const WireMessage& message) { list[count++] = message; }
  void add(void* data, std::size_t elements, collectives::DataType type) {
    add({.data = data, .count = elements, .type = type});
  }
};

class GradientWire {
 public:
  virtual ~GradientWire() = default;

  /// A view of `members` begins: forgets what belonged to the one before.
  virtual void begin_view(std::uint32_t members) = 0;
  /// Copies the sums of a bucket for the wire. The last bucket brings the totals along. The memory
  /// of the messages is the all-reduce's until it has ended.
  [[nodiscard]] virtual WireMessages pack(std::size_t bucket, const GradientSums& sums) = 0;
  /// The messages of a bucket have been reduced; others may still be under way.
  virtual void arrived(std::size_t bucket) = 0;

  // After every bucket has arrived. `exponents` are those that the step was quantised with, and
  // `largest` the maxima over all microbatches that the members exchanged; both empty in fp32.

  /// What the members counted, with blocks that only the reduced sums show to have overflowed.
  /// Once per step, before the functions below.
  [[nodiscard]] virtual StepTotals totals(std::span<const std::int32_t> exponents,
                                          std::span<const std::int32_t> largest) = 0;
  /// Brings to the host what mean() needs of it and has not: where sums are on a device, those of
  /// the parameters.
  virtual void fetch_sums() {}
  /// The mean over all microbatches of a block's elements: sum times `scale`.
  virtual void mean(std::size_t block, std::span<const std::int32_t> exponents, float scale,
                    std::span<float> out) const = 0;
  /// The exponent of the step after `step`, which was summed last, of the block's own kind of
  /// magnitude.
  [[nodiscard]] virtual std::int32_t next_exponent(Step step, std::size_t block,
                                                   std::int32_t exponent,
                                                   std::int32_t largest) const = 0;
  /// The exponent with which an overflowed step is tried again.
  [[nodiscard]] virtual std::int32_t raised_exponent(std::size_t block, std::int32_t exponent,
                                                     std::int32_t largest) const = 0;
};

/// `microbatches`: of a step, all members together. `layout` outlives the wire, and so does
/// `device`, which has the sums of parameters if it is not null (Wire::kInt32 and Wire::kFp32
/// only).
[[nodiscard]] std::unique_ptr<GradientWire> make_gradient_wire(
    Wire wire, const ReductionLayout& layout, std::uint32_t microbatches,
    collectives::DeviceSums* device = nullptr);

// The adapters behind it, for tests.
[[nodiscard]] std::unique_ptr<GradientWire> make_word_wire(const ReductionLayout& layout,
                                                           bool exact, std::uint32_t microbatches);
[[nodiscard]] std::unique_ptr<GradientWire> make_half_wire(const ReductionLayout& layout,
                                                           bool bfloat);
[[nodiscard]] std::unique_ptr<GradientWire> make_wrapped_wire(const ReductionLayout& layout,
                                                              std::uint32_t microbatches);

[[nodiscard]] std::unique_ptr<GradientWire> make_device_wire(const ReductionLayout& layout,
                                                             bool exact, std::uint32_t microbatches,
                                                             collectives::DeviceSums& device);

/// Words in front of the vector that carry StepTotals; eight used, the rest keeps what follows
/// aligned.
inline constexpr std::size_t kTotalsWords = 16;

void put_totals(const StepTotals& totals, std::span<std::uint32_t> words);
[[nodiscard]] StepTotals get_totals(std::span<const std::uint32_t> words);

}  // namespace mayfly::engine
