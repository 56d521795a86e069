#pragma once

// The cost of a job's servers. Pure; any thread. Money is in the currency of the prices.

#include <optional>
#include <string>
#include <vector>

#include "planner/calibration/calibration.hpp"

namespace mayfly::planner {

enum class BillingRule {
  /// As cloud_hooks::Bill counts: from the request until the server is gone, for a least time.
  kProduct,
  /// As the cost files of the ICAC 2019 study count: a lost server for its uptime, any other server
  /// for the duration of the job, a replacement for its part of it.
  kStudies,
};

/// One server of a job. Times in seconds since the job's first request.
struct BilledServer {
  double usd_per_second = 0;
  double requested_s = 0;
  double running_s = 0;            ///< when the machine exists
  std::optional<double> lost_s{};  ///< when the provider took it; empty = it was not taken
};

/// The cost of a job that ends `end_s` after its first request, and whose training took
/// `duration_s`.
[[nodiscard]] double cost_of(const std::vector<BilledServer>& servers, double duration_s,
                             double end_s, BillingRule rule);

/// Prices by machine type and market ("spot", "on_demand").
class Prices {
 public:
  explicit Prices(const Calibration& calibration) : rows_(calibration.prices) {}
  /// The price in money per second. kNotFound, with the markets for which the machine type has
  /// prices.
  [[nodiscard]] Result<double> server(const std::string& gpu, const std::string& market) const;
  [[nodiscard]] Result<double> parameter_server() const;

 private:
  [[nodiscard]] Result<double> find(const std::string& resource, const std::string& market) const;

  std::vector<PriceRow> rows_;
};

}  // namespace mayfly::planner
