#pragma once

// Slices that were leased and have to be leased again: their worker is lost, or did not begin them,
// or pushed them too late. Pure; any thread.

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/ids.hpp"

namespace mayfly::parameter_server {

class ReturnedSlices {
 public:
  void add(std::uint64_t slice) { slices_.try_emplace(slice); }
  /// This worker pushed the slice too late and is likely to be slow again, so preferably another
  /// worker computes it.
  void add_late(std::uint64_t slice, MemberId worker) { slices_.insert_or_assign(slice, worker); }
  /// The slice is leased again, or need not be.
  void remove(std::uint64_t slice) { slices_.erase(slice); }

  [[nodiscard]] bool empty() const { return slices_.empty(); }
  [[nodiscard]] bool has_before(std::uint64_t slice) const {
    return !slices_.empty() && slices_.begin()->first < slice;
  }
  /// The first slice.
  [[nodiscard]] std::optional<std::uint64_t> first() const {
    return slices_.empty() ? std::nullopt : std::optional(slices_.begin()->first);
  }
  /// The first slice for which this worker was not too late.
  [[nodiscard]] std::optional<std::uint64_t> first_for(MemberId worker) const {
    const auto place = std::ranges::find_if(
        slices_, [worker](const auto& entry) { return entry.second != worker; });
    return place == slices_.end() ? std::nullopt : std::optional(place->first);
  }
  /// All slices, in the order of their numbers.
  [[nodiscard]] std::vector<std::uint64_t> all() const {
    std::vector<std::uint64_t> slices;
    for (const auto& [slice, worker] : slices_) {
      slices.push_back(slice);
    }
    return slices;
  }

 private:
  std::map<std::uint64_t, std::optional<MemberId>> slices_;  // each with the worker that was late
};

}  // namespace mayfly::parameter_server
