#include "collectives/parameter_server/core/streamed_steps.hpp"

#include <algorithm>

namespace mayfly::parameter_server {

void StreamedSteps::change(bool streams, std::uint64_t slice) {
  if (streams == this->streams()) {
    return;
  }
  if (streams) {
    parts_.push_back({slice, kOpen});
  } else {
    parts_.back().last = slice;
  }
}

bool StreamedSteps::contains(std::uint64_t slice) const {
  return std::ranges::any_of(
      parts_, [slice](const Part& part) { return slice >= part.first && slice < part.last; });
}

std::uint64_t StreamedSteps::more_updates(std::uint64_t slice, const SyncPlan& plan) const {
  std::uint64_t more = 0;
  for (const Part& part : parts_) {
    const std::uint64_t last = std::min(slice, part.last);
    const std::uint64_t count = last > part.first ? last - part.first : 0;
    more += count - count / plan.phase_of(part.first).round;
  }
  return more;
}

}  // namespace mayfly::parameter_server
