#pragma once

// What a project may have in a region of Compute Engine, and whether a job's offers fit into it.
// Pure. Any thread.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "cloud_hooks/core/provider.hpp"

namespace mayfly::cloud_hooks {

struct GceQuota {
  std::string metric;  ///< Compute Engine's name, for example "PREEMPTIBLE_CPUS"
  double limit = 0;
  double usage = 0;

  friend bool operator==(const GceQuota&, const GceQuota&) = default;
};

/// Of the description of a region. kCorrupt if it is none; quotas of another form are left out.
[[nodiscard]] Result<std::vector<GceQuota>> parse_gce_quotas(std::string_view json);

/// For people: for each thing that a server of these offers draws on (processors, accelerators),
/// whether there is room. Spot servers draw on quotas of their own, or on the usual ones where the
/// project has none of those. Without offers: processors. Quotas that the region does not have are
/// not judged.
[[nodiscard]] std::vector<Finding> judge_gce_quotas(const std::string& region,
                                                    const std::vector<GceQuota>& quotas,
                                                    const std::vector<Offer>& offers);

}  // namespace mayfly::cloud_hooks
