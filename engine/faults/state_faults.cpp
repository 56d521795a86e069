#include "engine/faults/state_faults.hpp"

#include <algorithm>
#include <bit>
#include <span>

#include "base/random.hpp"

namespace mayfly::engine {
namespace {

/// The lowest bit of the exponent: the number is doubled or halved, and stays finite.
constexpr std::uint32_t kBit = 1U << 23;

void flip(std::span<float> values, std::uint64_t step) {
  float& value = values[mix64(step) % values.size()];
  value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ kBit);
}

}  // namespace

StateFaults::StateFaults(const std::vector<ChaosEvent>& events) {
  for (const ChaosEvent& event : events) {
    if (flips_a_bit(event.kind)) {
      events_.push_back(event);
    }
  }
}

bool StateFaults::due(Step committed) const {
  return std::ranges::any_of(
      events_, [committed](const ChaosEvent& event) { return value(committed) >= event.step; });
}

void StateFaults::after_commit(nn::ModelState& state) {
  std::erase_if(events_, [&state](const ChaosEvent& event) {
    if (value(state.committed) < event.step) {
      return false;
    }
    switch (event.kind) {
      case ChaosKind::kFlipWeights: flip(state.parameters.span(), event.step); break;
      case ChaosKind::kFlipMomentum: flip(state.momentum.span(), event.step); break;
      case ChaosKind::kFlipStatistics: flip(state.statistics.span(), event.step); break;
      default: break;
    }
    return true;
  });
}

}  // namespace mayfly::engine
