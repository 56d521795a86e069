#pragma once

// Time per step of one worker, by machine type and by network. Pure; any thread.
//
// One line in the relative operations for each machine type and family of networks, fitted on
// relative errors (CM-DARE, ICDCS 2020, fits one line for each type; families differ). A family
// whose time also grows with the width of its layers has a term in the square root as well. A type
// with few measured networks takes the shape of the curve from other types, as Habitat (ATC 2021)
// does for single operations. If overlapped_steps.hpp predicts left-out networks of a family better
// than these lines, it is used for the family, for all machine types together.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/calibration/calibration.hpp"
#include "planner/estimate.hpp"
#include "planner/models/networks.hpp"
#include "planner/models/overlapped_steps.hpp"

namespace mayfly::planner {

/// The step time of one network of a family on one machine type; there is one for each network.
struct StepPoint {
  std::string model;
  double gflops = 0;
  double step_s = 0;   ///< geometric mean of the campaigns
  double tensors = 0;  ///< 0 = unknown
};

class StepTimes {
 public:
  explicit StepTimes(const Calibration& calibration);

  /// Seconds per step; `network` is completed (Networks). With `kind`, a measured network's time is
  /// that of this campaign if there is one. kNotFound if no table has the machine type, or if the
  /// network's operations cannot be inferred.
  [[nodiscard]] Result<Forecast> step(const std::string& gpu, const Network& network,
                                      const std::string& kind = {}) const;
  /// The same with a network latency between worker and parameter server that may differ from that
  /// of the measurements.
  [[nodiscard]] Result<Forecast> step_with_latency(const std::string& gpu, const Network& network,
                                                   double latency_ms,
                                                   const std::string& kind = {}) const;
  /// The seconds that `further_ms` of latency beyond that of the measurements add to a step.
  /// kNotFound without any measurement with latency.
  [[nodiscard]] Result<Forecast> latency_cost(const std::string& gpu, const Network& network,
                                              double further_ms) const;

  /// The least latency of the measurements, in milliseconds.
  [[nodiscard]] double base_latency_ms() const { return base_latency_ms_; }

 private:
  using Points = std::vector<StepPoint>;
  /// One way to predict a step, with the error that it is known or assumed to have.
  struct Candidate {
    double step_s = 0;
    double error = 0;
    double weight = 1;
    std::string because;
  };
  struct LatencyPoint {
    double params = 0;
    double cost_s_per_ms = 0;
  };

  StepTimes(const Calibration& calibration, bool may_overlap);
  void measure_day_spread(const Calibration& calibration);
  void choose_forms();
  void try_overlap(const Calibration& calibration, const std::string& family);
  [[nodiscard]] std::optional<Candidate> from_overlap(const std::string& gpu,
                                                      const Network& network) const;
  [[nodiscard]] const Points& points(const std::string& gpu, const std::string& family) const;
  [[nodiscard]] std::vector<double> features(const std::string& family, double gflops) const;
  /// The time on a type with enough points of the family: measured, or else from its own fit.
  [[nodiscard]] std::optional<double> reference(const std::string& gpu, const std::string& family,
                                                const std::string& model, double gflops) const;
  [[nodiscard]] std::vector<Candidate> from_family(const std::string& gpu,
                                                   const std::string& family,
                                                   const std::string& model, double gflops) const;
  void add_transfers(const std::string& gpu, const std::string& family, const std::string& model,
                     double gflops, std::vector<Candidate>& candidates) const;
  [[nodiscard]] std::vector<Candidate> from_other_families(const std::string& gpu,
                                                           const Network& network) const;

  std::map<std::string, std::map<std::string, Points>> points_;  ///< by machine type and family
  std::map<std::string, std::vector<StepTimeRow>> measured_;     ///< by machine type
  std::map<std::string, bool> has_root_;                         ///< by family
  /// The model of a family whose steps overlap, and its error for left-out networks.
  struct Overlap {
    OverlappedSteps steps;
    double error = 0;
    std::size_t networks = 0;
  };
  std::map<std::string, Overlap> overlaps_;                     ///< by family
  std::map<std::string, std::vector<LatencyPoint>> latencies_;  ///< by machine type
  double day_spread_ = 0;  ///< of repetitions on other days: standard deviation of logarithms
  double base_latency_ms_ = 0;
};

}  // namespace mayfly::planner
