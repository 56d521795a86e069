#pragma once

// A growing set of slices that is almost a prefix: everything below a mark, and a few above it.

#include <cstdint>
#include <set>

namespace mayfly::parameter_server {

class SliceSet {
 public:
  /// Holds everything below `first`.
  explicit SliceSet(std::uint64_t first) : below_(first) {}

  /// False if it was in already.
  bool add(std::uint64_t slice) {
    if (contains(slice)) {
      return false;
    }
    above_.insert(slice);
    while (!above_.empty() && *above_.begin() == below_) {
      above_.erase(above_.begin());
      ++below_;
    }
    return true;
  }
  [[nodiscard]] bool contains(std::uint64_t slice) const {
    return slice < below_ || above_.contains(slice);
  }
  /// Every slice below this one is in.
  [[nodiscard]] std::uint64_t prefix() const { return below_; }
  /// All that are in.
  [[nodiscard]] std::uint64_t count() const { return below_ + above_.size(); }

 private:
  std::uint64_t below_;
  std::set<std::uint64_t> above_;
};

}  // namespace mayfly::parameter_server
