#include "engine/program/program_feed.hpp"

#include <algorithm>

namespace mayfly::engine {

std::vector<std::pair<std::uint64_t, std::uint32_t>> ProgramFeed::upcoming() const {
  const std::lock_guard lock(mutex_);
  return {requested_.begin(), requested_.end()};
}

void ProgramFeed::taken(std::uint64_t step, std::uint32_t microbatch) {
  const std::lock_guard lock(mutex_);
  std::erase(requested_, std::pair(step, microbatch));
}

void ProgramFeed::request(std::uint64_t step, std::span<const std::uint32_t> microbatches) {
  const std::lock_guard lock(mutex_);
  for (const std::uint32_t microbatch : microbatches) {
    const std::pair wanted(step, microbatch);
    if (std::ranges::find(requested_, wanted) == requested_.end()) {
      requested_.push_back(wanted);
    }
  }
}

void ProgramFeed::cancel_requests() {
  const std::lock_guard lock(mutex_);
  requested_.clear();
}

}  // namespace mayfly::engine
