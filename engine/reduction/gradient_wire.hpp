#pragma once

// Converts a worker's sums to their format in the all-reduce, and the reduced sums to mean
// gradients: one implementation per --wire. It owns the buffers of the all-reduce, which are
// separate from the worker's own sums. Trainer thread only.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/nccl/device_sums.hpp"
#include "collectives/plan/reduce_kernels.hpp"
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
  collectives::DeviceStream behind = nullptr;  ///< on_device only: the operation follows it
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

  /// To be called when a view of `members` members begins. Drops data of the previous view.
  virtual void begin_view(std::uint32_t members) = 0;
  /// Copies the sums of a bucket into messages, and the totals with the last bucket. The memory of
  /// the messages belongs to the all-reduce until it has ended.
  [[nodiscard]] virtual WireMessages pack(std::size_t bucket, const GradientSums& sums) = 0;
  /// To be called when the messages of a bucket have been reduced; other buckets may still be
  /// running.
  virtual void arrived(std::size_t bucket) = 0;

  // To be called after arrived() of every bucket. The step was quantised with `exponents`, and
  // `largest` are the exchanged maxima over all microbatches; both are empty in fp32.

  /// The counts of all members, including blocks whose overflow is visible only in the reduced
  /// sums. Once per step, before the functions below.
  [[nodiscard]] virtual StepTotals totals(std::span<const std::int32_t> exponents,
                                          std::span<const std::int32_t> largest) = 0;
  /// Copies the sums that mean() needs to the host: those of parameters, if they are on a device.
  virtual void fetch_sums() {}
  /// The mean over all microbatches of a block's elements: sum times `scale`.
  virtual void mean(std::size_t block, std::span<const std::int32_t> exponents, float scale,
                    std::span<float> out) const = 0;
  /// The exponent of a block for the step after `step`, which was reduced last.
  [[nodiscard]] virtual std::int32_t next_exponent(Step step, std::size_t block,
                                                   std::int32_t exponent,
                                                   std::int32_t largest) const = 0;
  /// The exponent with which an overflowed step is tried again.
  [[nodiscard]] virtual std::int32_t raised_exponent(std::size_t block, std::int32_t exponent,
                                                     std::int32_t largest) const = 0;
};

/// `microbatches`: of a step, over all members. `layout` outlives the wire, and so does `device`,
/// which has the sums of parameters if it is not null (Wire::kInt32 and Wire::kFp32 only).
[[nodiscard]] std::unique_ptr<GradientWire> make_gradient_wire(
    Wire wire, const ReductionLayout& layout, std::uint32_t microbatches,
    collectives::DeviceSums* device = nullptr);

}  // namespace mayfly::engine
