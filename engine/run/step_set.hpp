#pragma once

// A set of steps, kept as ranges: a job of any length may lack the records of many steps in a row.
// A value; pure.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

namespace mayfly::engine {

class StepSet {
 public:
  [[nodiscard]] bool empty() const { return ranges_.empty(); }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] bool contains(std::uint64_t step) const {
    const auto after = ranges_.upper_bound(step);
    return after != ranges_.begin() && std::prev(after)->second >= step;
  }
  /// The first steps of the set, so many at most, in ascending order.
  [[nodiscard]] std::vector<std::uint64_t> first(std::size_t most) const {
    std::vector<std::uint64_t> steps;
    for (const auto& [first, last] : ranges_) {
      for (std::uint64_t step = first; step <= last && steps.size() < most; ++step) {
        steps.push_back(step);
      }
    }
    return steps;
  }

  /// Adds the steps from `first` to `last`, which are later than all others; none if first > last.
  void append(std::uint64_t first, std::uint64_t last) {
    if (first <= last) {
      ranges_.emplace_hint(ranges_.end(), first, last);
      size_ += last - first + 1;
    }
  }
  void erase(std::uint64_t step) {
    if (!contains(step)) {
      return;
    }
    const auto range = std::prev(ranges_.upper_bound(step));
    const auto [first, last] = *range;
    ranges_.erase(range);
    if (first < step) {
      ranges_.emplace(first, step - 1);
    }
    if (step < last) {
      ranges_.emplace(step + 1, last);
    }
    --size_;
  }
  void erase_after(std::uint64_t step) {
    while (!ranges_.empty() && ranges_.rbegin()->second > step) {
      const auto [first, last] = *ranges_.rbegin();
      ranges_.erase(first);
      size_ -= last - first + 1;
      append(first, std::min(last, step));
    }
  }

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;  // the last step of each range, by its first
  std::uint64_t size_ = 0;
};

}  // namespace mayfly::engine
