#include "cli/job_listener.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <filesystem>

#include "base/file.hpp"
#include "base/thread_priority.hpp"
#include "base/try_assign.hpp"
#include "engine/run/run_directory.hpp"

namespace mayfly::cli {
namespace {

constexpr Duration kLastFetchMax = seconds(2);

std::string address_path(const std::string& run_dir) {
  return run_dir + "/dashboard";
}

/// Opens the page on the port of the process before a restart, if it is free, so that open pages
/// continue.
Result<Page> open_page_of(const engine::JobConfig& config) {
  PagePlace place;
  TRY_ASSIGN(place.listen, parse_dashboard(config.dashboard));
  TRY_ASSIGN(place.key, viewing_key_of(config.token_file));
  if (!is_numeric_address(place.listen.host)) {
    place.host_name = place.listen.host;
  }
  const auto open = [&]() -> Result<Page> {
    FollowedRuns runs;
    TRY_ASSIGN(runs.emplace_back(), observe::RunFollower::open(config.run_dir));
    return open_page(place, std::move(runs));
  };
  const std::uint16_t before = engine::port_in(address_path(config.run_dir));
  if (place.listen.port == 0 && before != 0) {
    place.listen.port = before;
    if (Result<Page> again = open(); again.ok()) {
      return again;
    }
    place.listen.port = 0;
  }
  return open();
}

}  // namespace

LivePage::LivePage(Page page) : page_(std::move(page)) {
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "dashboard");
    run_with_low_priority();
    page_.server->run(false);
  });
}

LivePage::~LivePage() {
  page_.server->finish(kLastFetchMax);
  thread_.join();
}

Result<void> JobListener::on_begun(const engine::JobConfig& config) {
  run_dir_ = config.run_dir;
  report_ = config.report;
  if (config.dashboard.empty()) {
    return {};
  }
  TRY_ASSIGN(Page page, open_page_of(config));
  TRY(write_file_atomic(address_path(run_dir_), to_string(page.endpoint) + "\n"));
  line_.on_event("dashboard at " + page.address);
  if (!page.warning.empty()) {
    line_.on_event(page.warning);
  }
  page_ = std::make_unique<LivePage>(std::move(page));
  return {};
}

void JobListener::on_summary(const engine::Summary& summary) {
  line_.on_summary(summary);
  if (!report_.empty()) {
    write_report_of_run();
  }
  page_.reset();
  std::error_code ignored;
  std::filesystem::remove(address_path(run_dir_), ignored);
}

void JobListener::write_report_of_run() {
  const auto write = [this]() -> Result<std::size_t> {
    FollowedRuns runs;
    TRY_ASSIGN(runs.emplace_back(), observe::RunFollower::open(run_dir_));
    return write_report(report_, runs);
  };
  const Result<std::size_t> written = write();
  results_ << (written.ok() ? fmt::format("  report        {} ({} KiB)\n", report_, written.value())
                            : "  no report: " + written.error().detail + "\n")
           << std::flush;
}

}  // namespace mayfly::cli
