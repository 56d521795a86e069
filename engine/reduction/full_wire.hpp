#pragma once

// Private to engine/reduction: what wires of 32 bits per element have in common, whether the words
// are reduced in the host's memory or in a GPU's. Trainer thread only.

#include <algorithm>

#include "engine/reduction/gradient_wire.hpp"

namespace mayfly::engine {

/// The sums travel as they are: integers with the step's exponents, or floats.
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

}  // namespace mayfly::engine
