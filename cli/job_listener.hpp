#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>

#include "base/time.hpp"
#include "cli/page.hpp"
#include "cli/progress_line.hpp"
#include "engine/run/run_listener.hpp"

namespace mayfly::cli {

/// Serves the page of a run while the run goes on, on a thread of its own with low priority.
class LivePage {
 public:
  explicit LivePage(Page page);
  /// Gives open pages a moment to fetch the end of the run.
  ~LivePage();
  LivePage(const LivePage&) = delete;
  LivePage& operator=(const LivePage&) = delete;

 private:
  Page page_;
  std::thread thread_;
};

/// Shows the events of a job for the command that runs it: progress on the terminal, the page of
/// --dashboard, and the report. Page and report are made from the files of the run directory, and
/// need nothing from the job.
class JobListener final : public engine::RunListener {
 public:
  JobListener(std::ostream& results, std::ostream& progress, ProgressLine::Options options,
              std::function<Instant()> now)
      : results_(results), line_(results, progress, options, std::move(now)) {}

  [[nodiscard]] Result<void> on_begun(const engine::JobConfig& config) override;
  void on_step(const engine::StepRecord& step, std::uint64_t total_steps) override {
    line_.on_step(step, total_steps);
  }
  void on_event(const std::string& line) override { line_.on_event(line); }
  void on_summary(const engine::Summary& summary) override;
  void on_nothing_left(const std::string& line) override { line_.on_nothing_left(line); }

 private:
  void write_report_of_run();

  std::ostream& results_;
  ProgressLine line_;
  std::string run_dir_;
  std::string report_;              // its file; empty = none
  std::unique_ptr<LivePage> page_;  // null without --dashboard
};

}  // namespace mayfly::cli
