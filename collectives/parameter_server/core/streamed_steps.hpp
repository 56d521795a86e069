#pragma once

// The steps of kBsp that are done slice by slice, because of a straggler
// (StragglerPolicy::kGreedy). Each slice is an update then, so parameters have other versions than
// the plan alone implies. Pure; any thread.

#include <cstdint>
#include <vector>

#include "collectives/parameter_server/core/sync_plan.hpp"

namespace mayfly::parameter_server {

class StreamedSteps {
 public:
  /// From this slice on, which begins a step or is the end, steps are done slice by slice, or no
  /// longer.
  void change(bool streams, std::uint64_t slice);
  /// Steps are done slice by slice at present.
  [[nodiscard]] bool streams() const { return !parts_.empty() && parts_.back().last == kOpen; }
  [[nodiscard]] bool contains(std::uint64_t slice) const;
  /// How many more updates than the plan implies have been made when exactly the slices before this
  /// one are applied.
  [[nodiscard]] std::uint64_t more_updates(std::uint64_t slice, const SyncPlan& plan) const;

 private:
  static constexpr std::uint64_t kOpen = UINT64_MAX;
  struct Part {
    std::uint64_t first = 0;
    std::uint64_t last = kOpen;  // the first slice after it
  };

  std::vector<Part> parts_;  // whole steps; only the last one may be open
};

}  // namespace mayfly::parameter_server
