#include "planner/billing.hpp"

#include <algorithm>
#include <cmath>

#include "cloud_hooks/core/bill.hpp"
#include "cloud_hooks/core/replacement_options.hpp"

namespace mayfly::planner {
namespace {

constexpr const char* kParameterServer = "parameter server";

Instant instant_at(double seconds_since_request) {
  return {static_cast<std::int64_t>(std::llround(seconds_since_request * 1e9))};
}

}  // namespace

double cost_of(const std::vector<BilledServer>& servers, double duration_s, double end_s,
               BillingRule rule) {
  if (rule == BillingRule::kStudies) {
    double sum = 0;
    for (const BilledServer& server : servers) {
      const bool is_lost = server.lost_s && *server.lost_s < end_s;
      sum += server.usd_per_second *
             std::max((is_lost ? *server.lost_s : duration_s) - server.running_s, 0.0);
    }
    return sum;
  }
  cloud_hooks::Bill bill(0, cloud_hooks::ReplacementOptions{}.billed_at_least);
  for (std::size_t i = 0; i < servers.size(); ++i) {
    if (servers[i].requested_s >= end_s && end_s > 0) {
      continue;  // the job had ended
    }
    const std::string item = std::to_string(i);
    bill.open(item, servers[i].usd_per_second * kSecondsPerHour,
              instant_at(servers[i].requested_s));
    bill.close(item, instant_at(std::min(servers[i].lost_s.value_or(end_s), end_s)));
  }
  return bill.spent(instant_at(end_s));
}

Result<double> Prices::server(const std::string& gpu, const std::string& market) const {
  return find("1x" + gpu + " server", market);
}

Result<double> Prices::parameter_server() const {
  return find(kParameterServer, "");
}

Result<double> Prices::find(const std::string& resource, const std::string& market) const {
  std::string others;
  for (const PriceRow& row : rows_) {
    if (row.resource == resource && (market.empty() || row.market == market)) {
      return row.usd_per_second;
    }
    if (row.resource == resource) {
      others += (others.empty() ? "; it has one for " : ", ") + row.market;
    }
  }
  return Error{Errc::kNotFound, "prices.csv has no price of a " + resource +
                                    (market.empty() ? "" : " on the market " + market) + others};
}

}  // namespace mayfly::planner
