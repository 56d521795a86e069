#pragma once

// The search for the earliest moment at which a recurring job may switch from bsp to something
// faster without losing accuracy (the offline policy of Sync-Switch), and its report. The search is
// a pure state machine: it names the next run and receives its result. Equal results lead to the
// same next run, so an interrupted search is repeated with the recorded results. No thread matters.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mayfly::engine {

struct SwitchSearchOptions {
  std::uint64_t steps = 0;       ///< of the job; at least 2
  double tolerance = 0.01;       ///< of the mean test accuracy, 0 to 1
  std::uint32_t runs = 5;        ///< at each point
  std::uint32_t probes = 5;      ///< points that are tried at most
  std::uint64_t first_seed = 1;  ///< every point has the same seeds
};

/// A run of the search, which begins with `bsp_steps` steps of bsp; all its steps at the first
/// point.
struct SwitchRun {
  std::uint64_t bsp_steps = 0;
  std::uint64_t seed = 0;
  friend bool operator==(const SwitchRun&, const SwitchRun&) = default;
};

enum class SwitchVerdict : std::uint8_t {
  kOpen,      ///< runs are missing
  kTarget,    ///< bsp alone, with which the other points are compared
  kAccepted,  ///< as accurate, within the tolerance
  kRejected,  ///< less accurate, or a run failed
};
[[nodiscard]] std::string to_text(SwitchVerdict verdict);

/// A step after which to switch, and the results of its runs.
struct SwitchPoint {
  std::uint64_t bsp_steps = 0;
  std::vector<double> top1{};     ///< of the runs that ended well, 0 to 1
  std::vector<double> seconds{};  ///< of the same
  std::uint32_t failed = 0;       ///< runs that did not, for example because they diverged
  double failed_seconds = 0;      ///< training time of these
  SwitchVerdict verdict = SwitchVerdict::kOpen;

  [[nodiscard]] double mean_top1() const;
  [[nodiscard]] double mean_seconds() const;
};

class SwitchSearch {
 public:
  explicit SwitchSearch(const SwitchSearchOptions& options);

  /// The next run; nothing if the search is over.
  [[nodiscard]] std::optional<SwitchRun> next() const;
  /// The result of the run that next() named; `top1` is empty if the run failed.
  void finished(std::optional<double> top1, double seconds);

  /// The points in the order in which they were tried; the first one is bsp alone.
  [[nodiscard]] const std::vector<SwitchPoint>& points() const { return points_; }
  /// No run of bsp alone has ended well, so there is no accuracy to compare with.
  [[nodiscard]] bool is_void() const { return is_void_; }
  /// The earliest accepted point, or bsp alone.
  [[nodiscard]] const SwitchPoint& best() const;

 private:
  void judge();
  void try_next();

  const SwitchSearchOptions options_;
  std::vector<SwitchPoint> points_;
  std::uint64_t low_ = 0;  // rejected; at first 0, no bsp at all, which is never tried
  std::uint64_t high_;     // accepted
  bool over_ = false;
  bool is_void_ = false;
};

/// The facts of the report besides the points.
struct SwitchReportFacts {
  SwitchSearchOptions options;
  std::string then = "asp";  ///< the phases after bsp
  std::string command;
};

/// For a terminal: a line for each point, and the conclusion.
[[nodiscard]] std::string switch_table(const SwitchSearch& search, const SwitchReportFacts& facts);
/// report.html: the command, the table, and charts of accuracy and time.
[[nodiscard]] std::string switch_page(const SwitchSearch& search, const SwitchReportFacts& facts);
/// The phases that the search found, in the form of --phases.
[[nodiscard]] std::string switch_phases(const SwitchSearch& search, const SwitchReportFacts& facts);
/// The whole report as one JSON object.
[[nodiscard]] std::string switch_json(const SwitchSearch& search, const SwitchReportFacts& facts);

}  // namespace mayfly::engine
