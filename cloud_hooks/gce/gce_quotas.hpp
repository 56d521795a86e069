#pragma once

// The quotas of a project in a region of Compute Engine, and the check whether a job's offers fit
// into them. Pure. Any thread.

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

/// Reads the quotas from the description of a region. kCorrupt if the text is not such a
/// description; quotas of another form are skipped.
[[nodiscard]] Result<std::vector<GceQuota>> parse_gce_quotas(std::string_view json);

/// Findings for `mayfly cloud doctor`: whether each quota that servers of these offers use
/// (processors, accelerators) has room. Spot servers use separate quotas, or the usual ones if the
/// project has none. Without offers only processors are checked. Quotas that the region does not
/// have are skipped.
[[nodiscard]] std::vector<Finding> judge_gce_quotas(const std::string& region,
                                                    const std::vector<GceQuota>& quotas,
                                                    const std::vector<Offer>& offers);

}  // namespace mayfly::cloud_hooks
