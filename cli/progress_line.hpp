#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "base/time.hpp"
#include "engine/launch/launch.hpp"

namespace mayfly::cli {

/// Shows the progress of a run. On a terminal this is one line that is rewritten (step, loss,
/// images/s, members, time left, and the share of time spent waiting for data if it is large), with
/// events printed above it. On other outputs it prints events, and a plain line after every
/// twentieth of the job or every ten seconds, at most one per second. The summary follows at the
/// end. One thread at a time.
class ProgressLine final : public engine::RunListener {
 public:
  struct Options {
    bool is_terminal = false;
    bool quiet = false;  ///< only the result: the summary, or that nothing is left to do
  };
  /// Progress and events go to `progress`, the summary to `results`. `now` is the clock.
  ProgressLine(std::ostream& results, std::ostream& progress, Options options,
               std::function<Instant()> now);
  ~ProgressLine() override;
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void on_step(const engine::StepRecord& metric, std::uint64_t total_steps) override;
  void on_event(const std::string& line) override;
  void on_summary(const engine::Summary& summary) override;
  void on_nothing_left(const std::string& line) override;

 private:
  [[nodiscard]] bool is_due(Instant now, std::uint64_t step, std::uint64_t total_steps) const;
  [[nodiscard]] std::string line_of(const engine::StepRecord& metric,
                                    std::uint64_t total_steps) const;
  /// Clears the rewritten line from the terminal.
  void erase();

  std::ostream& results_;
  std::ostream& progress_;
  Options options_;
  std::function<Instant()> now_;
  std::string shown_;  // the line on the terminal; empty = none
  bool printed_once_ = false;
  Instant last_printed_;
  std::uint64_t last_step_ = 0;  // of the last plain line
  double rate_ = 0;              // images/s, smoothed
  double data_wait_ = 0;         // share of the time spent waiting for data, smoothed
};

}  // namespace mayfly::cli
