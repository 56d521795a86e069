#pragma once

// Times from the request of a server to its first useful step. Pure; any thread.

#include <string>
#include <vector>

#include "planner/calibration/calibration.hpp"
#include "planner/estimate.hpp"
#include "planner/models/networks.hpp"

namespace mayfly::planner {

/// Start-up times as distributions: of single starts if some were measured (with their slow tail),
/// otherwise normal around the mean of a batch, and widened by the differences between the batches
/// of different days. A machine type that was not measured takes those of all others.
class Startups {
 public:
  explicit Startups(const Calibration& calibration);

  /// Seconds from the request until the server runs. `asked` is "" for single starts, or a part of
  /// the word in replacement.csv, such as "right after a revocation". `stage` is "" (all),
  /// "provision", "staging" or "booting", of single starts. kNotFound.
  [[nodiscard]] Result<Forecast> start(const std::string& gpu, const std::string& market_class,
                                       const std::string& asked, const std::string& stage) const;

 private:
  [[nodiscard]] Result<Forecast> asked_start(const std::string& gpu,
                                             const std::string& asked) const;

  std::vector<StartupRow> starts_;
  std::vector<ReplacementRow> batches_;
  double batch_spread_ = 0;  ///< between batches, of logarithms
};

/// Seconds from a running server to its first useful step: a line in the network's tensors. `where`
/// is "new server" or "same server". kNotFound.
[[nodiscard]] Result<Forecast> join_time(const Calibration& calibration, const Networks& networks,
                                         const Network& network, const std::string& where);

/// Seconds that a cluster without fail-over loses with its chief, `steps` after a checkpoint, at a
/// speed in steps per second; a line that is fitted to replacement.csv, not derived. kNotFound.
[[nodiscard]] Result<Forecast> chief_loss(const Calibration& calibration, double steps,
                                          double steps_per_s);

/// Seconds to the end of the job of remaining_time.csv after a loss at this step. kNotFound.
[[nodiscard]] Result<Forecast> remaining_time(const Calibration& calibration, double step);
/// The constant that remaining_time.csv has beyond the published formula (CM-DARE, ICDCS 2020):
/// t = t_req + (W - n) / v_new - t_req v_cur / v_new. 0 without the table.
[[nodiscard]] double remaining_time_constant(const Calibration& calibration);

/// Seconds from a loss until the other workers compute again, from rows "recovery, CAUSE" of
/// replacement.csv: those of the network, or of other networks if it has none. kNotFound.
[[nodiscard]] Result<Forecast> recovery_time(const Calibration& calibration,
                                             const std::string& model, const std::string& cause);

}  // namespace mayfly::planner
