#include "planner/simulation/earliest.hpp"

#include <algorithm>

namespace mayfly::planner {

void Earliest::clear() {
  std::ranges::fill(least_, kNever);
}

void Earliest::grow(std::size_t positions) {
  std::size_t more = std::max<std::size_t>(positions_, 1);
  while (more < positions) {
    more *= 2;
  }
  std::vector<double> least(2 * more, kNever);
  std::copy_n(least_.begin() + static_cast<std::ptrdiff_t>(positions_), positions_,
              least.begin() + static_cast<std::ptrdiff_t>(more));
  for (std::size_t node = more; node-- > 1;) {
    least[node] = std::min(least[2 * node], least[2 * node + 1]);
  }
  positions_ = more;
  least_ = std::move(least);
}

void Earliest::set(std::size_t position, double at_s) {
  if (position >= positions_) {
    grow(position + 1);
  }
  std::size_t node = positions_ + position;
  least_[node] = at_s;
  for (node /= 2; node > 0; node /= 2) {
    least_[node] = std::min(least_[2 * node], least_[2 * node + 1]);
  }
}

std::optional<std::size_t> Earliest::first() const {
  if (first_s() == kNever) {
    return std::nullopt;
  }
  std::size_t node = 1;
  while (node < positions_) {
    node = least_[2 * node + 1] < least_[2 * node] ? 2 * node + 1 : 2 * node;
  }
  return node - positions_;
}

}  // namespace mayfly::planner
