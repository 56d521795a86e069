#pragma once

// Measurements that the planner's models are fitted to: one row type for each file of a calibration
// folder. Any subset of the files is a valid folder. Times in seconds, sizes in MB, money in the
// currency of the price file. Pure; any thread.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace mayfly::planner {

/// step_time.csv: one worker's time per step.
struct StepTimeRow {
  std::string gpu, model, family;
  double gflops = 0;  ///< relative operations of a step; comparable within a family only
  double params = 0;
  double network_latency_ms = 0;
  std::optional<double> tensors, samples, sd_s;
  double step_s = 0;
  std::string kind;  ///< the campaign
};

/// cluster_speed.csv: updates per second of workers of one type. `kind` is "steady" (training
/// alone) or "whole job" (all steps over the whole duration). The last three fields are only for
/// workers that share the microbatches of a step (models/work_sharing.hpp), and empty otherwise.
struct ClusterSpeedRow {
  std::string gpu, model, kind;
  int parameter_servers = 0;
  int workers = 0;
  double steps_per_s = 0;
  std::optional<double> sd, runs;
  std::optional<double> microbatches{}, threads{}, cores{};
};

/// checkpoint.csv: one checkpoint; `local_s` is the part before the upload.
struct CheckpointRow {
  std::string model, family;
  std::optional<double> tensors, meta_mb, local_s;
  double weights_mb = 0;
  double duration_s = 0;
};

/// lifetime_by_hour.csv: how many of `servers` were revoked within `hours` of age.
struct LifetimeByHourRow {
  std::string gpu, region;
  double servers = 0, hours = 0, revoked_by_then = 0;
};

/// lifetime_servers.csv: one server. `ended_by` is "revoked", "cap", or another word if the end is
/// only a lower bound of the lifetime.
struct LifetimeServerRow {
  std::string study, gpu, zone, launched, ended_by;
  std::optional<double> launch_hour_of_day;
  double lifetime_s = 0;
};

/// training_server_uptime.csv: one server of a training cluster; an `end` other than "revoked" is
/// only a lower bound.
struct ServerUptimeRow {
  std::string cluster, zone, run, role, end;
  double uptime_s = 0;
};

/// training_jobs.csv: means over the runs of a cluster such as "2xK80 transient".
struct TrainingJobRow {
  std::string cluster;
  int workers = 0;
  int parameter_servers = 0;
  double runs = 1;
  double duration_s = 0;
  std::optional<double> duration_sd_s, accuracy, accuracy_sd, cost_usd;
};

/// cross_region_*.csv: workers spread over regions, for example 2+1+1; `gpu` is from the file name.
struct CrossRegionRow {
  std::string gpu, split;
  double duration_s = 0;
  std::optional<double> duration_sd_s, accuracy;
  double steps_per_s = 0;
};

/// replacement.csv: start-up after a revocation, joining, loss of the chief.
struct ReplacementRow {
  std::string what, item;
  double mean_s = 0;
  std::optional<double> sd_s;
};

/// startup_untrimmed.csv: one start of a server by stage.
struct StartupRow {
  std::string market_class, gpu;
  double provision_s = 0, staging_s = 0, booting_s = 0;
};

/// remaining_time.csv: time to the end of a job after one of its workers was lost.
struct RemainingTimeRow {
  double step_of_revocation = 0, actual_s = 0;
  std::optional<double> estimated_s;
};

/// switch_runs.csv: runs that train synchronously for a part of the work, then asynchronously.
struct SwitchRunRow {
  std::string group, run;
  double final_accuracy = 0, time_s = 0;
  std::optional<double> last_step;
};

/// prices.csv.
struct PriceRow {
  std::string resource, market;
  double usd_per_second = 0;
};

struct Calibration {
  std::vector<StepTimeRow> step_times;
  std::vector<ClusterSpeedRow> cluster_speeds;
  std::vector<CheckpointRow> checkpoints;
  std::vector<LifetimeByHourRow> lifetimes_by_hour;
  std::vector<LifetimeServerRow> lifetime_servers;
  std::vector<ServerUptimeRow> server_uptimes;
  std::vector<TrainingJobRow> training_jobs;
  std::vector<CrossRegionRow> cross_region;
  std::vector<ReplacementRow> replacements;
  std::vector<StartupRow> startups;
  std::vector<RemainingTimeRow> remaining_times;
  std::vector<SwitchRunRow> switch_runs;
  std::vector<PriceRow> prices;
};

/// Whether a file of this name (without folder) is a table of a calibration.
[[nodiscard]] bool is_calibration_file(std::string_view name);

/// Appends the rows of one file, `name` without folder. Columns are found by their names; columns
/// that no model uses are ignored. kInvalidInput with file, line and column for a missing column,
/// a field that is no number or outside of its range; `calibration` is then unchanged.
[[nodiscard]] Result<void> add_table(const std::string& name, std::string_view text,
                                     Calibration& calibration);

/// Rows of one origin, and columns that name this origin in each row.
struct TableSource {
  const Calibration* rows = nullptr;
  std::vector<std::pair<std::string, std::string>> further;  ///< column and value
};
struct TableText {
  std::string name;  ///< of the file
  std::string text;
};

/// The tables that have rows, as add_table reads them back; ends of lines and bytes that are no
/// UTF-8 are question marks. All sources have the same further columns. The table that has a field
/// in its file name (cross_region_) is left out.
[[nodiscard]] std::vector<TableText> tables_of(const std::vector<TableSource>& sources);

}  // namespace mayfly::planner
