#include "base/usable_cores.hpp"

#include <sched.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <thread>

#include "base/control_group.hpp"
#include "base/parse.hpp"

namespace mayfly {
namespace {

/// The number of cores that `quota` of each `period` keeps busy, at least one; no limit if one of
/// them is missing, as with the quotas "max" and "-1".
std::uint32_t cores_in(std::string_view quota, std::string_view period) {
  const std::uint64_t busy = leading_number(quota).value_or(0);
  const std::uint64_t whole = leading_number(period).value_or(0);
  const std::uint64_t cores = busy == 0 || whole == 0 ? UINT32_MAX : (busy - 1) / whole + 1;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(cores, UINT32_MAX));
}

/// By the innermost group that has a set, which is within those of the groups above it, unless it
/// was taken out of them.
std::uint32_t cores_in_set(const std::vector<std::string>& groups, const char* file) {
  for (const std::string& group : groups) {
    if (const std::uint32_t count = cores_in_list(content_of_kernel_file(group + file))) {
      return count;
    }
  }
  return UINT32_MAX;
}

std::uint32_t cores_by_groups() {
  std::uint32_t least = UINT32_MAX;
  for (const std::string& group : control_groups()) {
    const std::string limit = content_of_kernel_file(group + "/cpu.max");
    const std::size_t blank = std::min(limit.find(' '), limit.size());
    least = std::min(least, cores_in(limit, std::string_view(limit).substr(blank)));
  }
  for (const std::string& group : control_groups("cpu")) {
    least = std::min(least, cores_in(content_of_kernel_file(group + "/cpu.cfs_quota_us"),
                                     content_of_kernel_file(group + "/cpu.cfs_period_us")));
  }
  least = std::min(least, cores_in_set(control_groups(), "/cpuset.cpus.effective"));
  return std::min(least, cores_in_set(control_groups("cpuset"), "/cpuset.effective_cpus"));
}

/// A mask of more processors than the type has is an error.
std::uint32_t cores_by_mask() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0
             ? static_cast<std::uint32_t>(CPU_COUNT(&cores))
             : std::thread::hardware_concurrency();
}

std::uint32_t limit_of_groups() {
  static const std::uint32_t kByGroups = cores_by_groups();
  return kByGroups;
}

}  // namespace

std::uint32_t cores_in_list(std::string_view list) {
  std::uint32_t count = 0;
  for (const std::string_view part : split(list, ',')) {
    const std::size_t dash = std::min(part.find('-'), part.size());
    const auto first = number_in<std::uint32_t>(part.substr(0, dash));
    const auto last = dash == part.size() ? first : number_in<std::uint32_t>(part.substr(dash + 1));
    if (!first || !last || *last < *first) {
      return 0;
    }
    count += *last - *first + 1;
  }
  return count;
}

std::uint32_t usable_cores() {
  return std::min(cores_by_mask(), limit_of_groups());
}

std::uint32_t cores_of_all() {
  return std::min(std::thread::hardware_concurrency(), limit_of_groups());
}

std::uint32_t share_of_cores(std::uint32_t all, std::uint32_t usable, std::uint32_t processes) {
  return std::max(1U, std::min(all / std::max(1U, processes), usable));
}

}  // namespace mayfly
