#pragma once

// How long spot servers live. Pure; any thread. Ages in hours.
//
// Hazards by hour of age, since published lifetimes follow none of the usual distributions (ICAC
// 2019): many servers are lost in their first hours, few later, and those that reach the cap all
// end there. The estimate for each machine type and region is shrunk towards the pool of all: its
// hazards have a gamma prior around the pool's, whose shape is fitted to the differences between
// regions.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/calibration/calibration.hpp"
#include "planner/distributions.hpp"
#include "planner/estimate.hpp"
#include "planner/models/loss_bursts.hpp"

namespace mayfly::planner {

/// Revocations and exposure by hour of age.
struct Exposure {
  std::vector<double> revoked;
  std::vector<double> server_hours;
};

/// The region of a zone, by its name: us-east1-c is in us-east1, and us-east-1c in us-east-1.
[[nodiscard]] std::string region_of(const std::string& zone);

class Lifetimes {
 public:
  explicit Lifetimes(const Calibration& calibration);

  /// The hazards of this machine type and region; where these are not known, the pool's. `region`
  /// may be a zone; empty = all regions of this type.
  [[nodiscard]] Result<LifetimeTable> curve(const std::string& gpu,
                                            const std::string& region) const;
  /// The share of servers that have reached age `from_h` and are revoked by `to_h`. The interval
  /// includes the differences between regions and months, and chance among `servers` servers (0 =
  /// infinitely many).
  [[nodiscard]] Result<Forecast> revoked_share(const std::string& gpu, const std::string& region,
                                               double from_h, double to_h, double servers) const;
  /// Whether any server was revoked. If none was, curve() has no losses, but that is not certain:
  /// revoked_share() then assumes half a loss in the observed server-hours.
  [[nodiscard]] bool is_any_lost() const { return is_any_lost_; }
  [[nodiscard]] double server_hours() const { return server_hours_; }
  /// The age in hours at the end of one server that has reached `age_h`.
  [[nodiscard]] Result<Forecast> lifetime(const std::string& gpu, const std::string& region,
                                          double age_h) const;
  /// The hazard at this hour of the day over that of the mean hour, at equal age; from servers
  /// whose launch hour is known. kNotFound without any.
  [[nodiscard]] Result<Forecast> hour_of_day_factor(double hour) const;
  /// kNotFound without batches of two or more servers.
  [[nodiscard]] Result<LossBursts> bursts() const;

 private:
  using Key = std::pair<std::string, std::string>;  // machine type, region

  void add_hours(const Calibration& calibration);
  void add_servers(const Calibration& calibration);
  void measure_pool();
  void measure_hours_of_day(const Calibration& calibration);
  /// The hazards of curve(), by hour of age up to the cap.
  [[nodiscard]] Result<std::vector<double>> hazards(const std::string& gpu,
                                                    const std::string& region) const;
  /// The counts of this machine type and region; null if there are none.
  [[nodiscard]] const Exposure* find(const std::string& gpu, const std::string& region) const;
  [[nodiscard]] double variance_between_regions(const std::vector<double>& parts_of_hours) const;
  [[nodiscard]] std::string because(const std::string& gpu, const std::string& region) const;

  std::map<Key, Exposure> groups_;
  std::vector<double> pool_;    ///< hazards per hour of age
  std::vector<double> shapes_;  ///< of the gamma prior of a region's hazard, by hour of age
  std::size_t cap_h_ = 0;       ///< the age up to which there are observations
  double server_hours_ = 0;     ///< of all servers
  bool is_any_lost_ = false;
  bool is_capped_ = false;  ///< no server lives longer; otherwise the last hazard continues
  std::vector<double> hour_losses_, hour_expected_;  ///< by hour of the day
  LossBursts bursts_;
};

}  // namespace mayfly::planner
