#include "engine/processes/rejoin_limit.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kFirstDelay = milliseconds(250);

}  // namespace

std::optional<Duration> RejoinLimit::evicted(Instant now) {
  while (!evictions_.empty() && now - evictions_.front() > kWindow) {
    evictions_.pop_front();
  }
  if (evictions_.size() + 1 >= kEvictionsMax) {
    return std::nullopt;
  }
  evictions_.push_back(now);
  const std::size_t before = evictions_.size() - 1;
  return before == 0 ? Duration::zero() : kFirstDelay * (std::int64_t{1} << (before - 1));
}

}  // namespace mayfly::engine
