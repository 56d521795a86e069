#include "engine/training/audit.hpp"

#include <vector>

#include "base/random.hpp"

namespace mayfly::engine {

std::optional<std::uint32_t> audited_microbatch(Step step, std::uint64_t every, std::uint64_t seed,
                                                std::uint32_t microbatches) {
  if (every == 0 || value(step) % every != 0) {
    return std::nullopt;
  }
  return static_cast<std::uint32_t>(mix64(mix64(seed) ^ value(step)) % microbatches);
}

std::optional<Rank> auditor_of(const elastic::View& view, std::uint32_t microbatch, Step step,
                               bool in_first_step) {
  std::vector<Rank> others;
  for (std::size_t r = 0; r < view.members.size(); ++r) {
    const elastic::ViewMember& member = view.members[r];
    const bool is_own = in_first_step ? member.first_step.contains(microbatch)
                                      : microbatch - member.first < member.count;
    if (!member.is_observer() && !is_own) {
      others.push_back(static_cast<Rank>(r));
    }
  }
  if (others.empty()) {
    return std::nullopt;
  }
  return others[value(step) % others.size()];
}

}  // namespace mayfly::engine
