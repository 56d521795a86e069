#include "engine/reduction/gradient_wire.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"

namespace mayfly::engine {
namespace {

using StepWords = std::array<std::uint32_t, sizeof(StepTotals) / sizeof(std::uint32_t)>;
static_assert(sizeof(StepTotals) <= kTotalsWords * sizeof(std::uint32_t));

}  // namespace

void put_totals(const StepTotals& totals, std::span<std::uint32_t> words) {
  std::ranges::copy(std::bit_cast<StepWords>(totals), words.begin());
}

StepTotals get_totals(std::span<const std::uint32_t> words) {
  StepWords found{};
  std::copy_n(words.begin(), found.size(), found.begin());
  return std::bit_cast<StepTotals>(found);
}

std::unique_ptr<GradientWire> make_gradient_wire(Wire wire, const ReductionLayout& layout,
                                                 std::uint32_t microbatches,
                                                 collectives::DeviceSums* device) {
  if (device != nullptr) {
    ENSURE(wire == Wire::kInt32 || wire == Wire::kFp32, "32 bits per element on a device");
    return make_device_wire(layout, is_exact(wire), microbatches, *device);
  }
  switch (wire) {
    case Wire::kInt32: return make_word_wire(layout, true, microbatches);
    case Wire::kFp32: return make_word_wire(layout, false, microbatches);
    case Wire::kBf16: return make_half_wire(layout, true);
    case Wire::kFp16: return make_half_wire(layout, false);
    case Wire::kInt16: return make_wrapped_wire(layout, microbatches);
  }
  UNREACHABLE("a Wire outside its enumerators");
}

}  // namespace mayfly::engine
