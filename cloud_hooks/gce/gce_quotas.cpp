#include "cloud_hooks/gce/gce_quotas.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>
#include <optional>
#include <set>

#include "cloud_hooks/http/answers.hpp"

namespace mayfly::cloud_hooks {
namespace {

namespace json = boost::json;

constexpr const char* kSpotPrefix = "PREEMPTIBLE_";

/// "nvidia-tesla-t4" is counted as NVIDIA_T4_GPUS.
std::string metric_of_accelerator(std::string_view accelerator) {
  for (const std::string_view prefix : {"nvidia-", "tesla-"}) {
    if (accelerator.starts_with(prefix)) {
      accelerator.remove_prefix(prefix.size());
    }
  }
  std::string metric = "NVIDIA_";
  for (const char c : accelerator) {
    metric += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return metric + "_GPUS";
}

/// The quotas that servers of an offer use, by their usual names.
std::vector<std::string> metrics_of(const Offer& offer) {
  std::vector<std::string> metrics = {"CPUS"};
  const std::size_t plus = offer.machine_type.find('+');
  if (plus != std::string::npos) {
    const std::string extra = offer.machine_type.substr(plus + 1);
    metrics.push_back(metric_of_accelerator(extra.substr(0, extra.find(':'))));
  }
  return metrics;
}

std::optional<double> number_of(const json::object& object, std::string_view name) {
  const json::value* const value = object.if_contains(name);
  return value != nullptr && value->is_number() ? std::optional(value->to_number<double>())
                                                : std::nullopt;
}

const GceQuota* find(const std::vector<GceQuota>& quotas, const std::string& metric) {
  const auto at = std::find_if(quotas.begin(), quotas.end(),
                               [&](const GceQuota& quota) { return quota.metric == metric; });
  return at == quotas.end() ? nullptr : &*at;
}

/// One quota with room is enough.
void judge(const std::string& region, const std::vector<const GceQuota*>& any_of,
           std::vector<Finding>& findings) {
  bool has_room = false;
  std::string text;
  for (const GceQuota* quota : any_of) {
    has_room = has_room || quota->usage < quota->limit;
    text += fmt::format("{}{} {:g} of {:g} in use", text.empty() ? "" : ", ", quota->metric,
                        quota->usage, quota->limit);
  }
  if (!any_of.empty()) {
    findings.push_back({has_room, fmt::format("{} of {}: {}", has_room ? "quota" : "no quota left",
                                              region, text)});
  }
}

}  // namespace

Result<std::vector<GceQuota>> parse_gce_quotas(std::string_view text) {
  boost::system::error_code error;
  const json::value parsed = json::parse(text, error);
  const json::object* const region = error ? nullptr : parsed.if_object();
  if (region == nullptr) {
    return Error{Errc::kCorrupt, "the answer is not a JSON object"};
  }
  std::vector<GceQuota> quotas;
  const json::value* const all = region->if_contains("quotas");
  if (all == nullptr || !all->is_array()) {
    return quotas;
  }
  for (const json::value& value : all->get_array()) {
    const json::object* const quota = value.if_object();
    const json::value* const metric = quota == nullptr ? nullptr : quota->if_contains("metric");
    if (metric == nullptr || !metric->is_string()) {
      continue;
    }
    const std::optional<double> limit = number_of(*quota, "limit");
    const std::optional<double> usage = number_of(*quota, "usage");
    if (limit && usage) {
      quotas.push_back({readable(metric->get_string()), *limit, *usage});
    }
  }
  return quotas;
}

std::vector<Finding> judge_gce_quotas(const std::string& region,
                                      const std::vector<GceQuota>& quotas,
                                      const std::vector<Offer>& offers) {
  std::set<std::pair<std::string, Market>> drawn_on;
  for (const Offer& offer : offers) {
    for (const std::string& metric : metrics_of(offer)) {
      drawn_on.emplace(metric, offer.market);
    }
  }
  if (offers.empty()) {
    drawn_on.emplace("CPUS", Market::kSpot);
  }
  std::vector<Finding> findings;
  for (const auto& [metric, market] : drawn_on) {
    std::vector<const GceQuota*> any_of;
    for (const std::string& name : market == Market::kSpot
                                       ? std::vector<std::string>{kSpotPrefix + metric, metric}
                                       : std::vector<std::string>{metric}) {
      if (const GceQuota* const quota = find(quotas, name)) {
        any_of.push_back(quota);
      }
    }
    judge(region, any_of, findings);
  }
  return findings;
}

}  // namespace mayfly::cloud_hooks
