#include "benchmarks/elastic/bench_output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "benchmarks/elastic/job_launcher.hpp"
#include "benchmarks/elastic/step_log.hpp"
#include "benchmarks/machine_facts.hpp"
#include "engine/membership/exit_codes.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::bench {
namespace {

constexpr std::uint64_t kMicrobatchesToSettle = 48;  // until the workers' running mean is settled

}  // namespace

ScratchRun::ScratchRun(engine::JobConfig& job) {
  if (job.run_dir.empty()) {
    folder_ = (std::filesystem::temp_directory_path() /
               fmt::format("mayfly-bench-{}", static_cast<int>(::getpid())))
                  .string();
    job.run_dir = folder_ + "/run";
  }
}

ScratchRun::~ScratchRun() {
  std::error_code ignored;
  if (!folder_.empty()) {
    std::filesystem::remove_all(folder_, ignored);
  }
}

JsonFields job_facts(const ElasticBenchOptions& options) {
  const engine::JobConfig& job = options.job;
  return {{"workers", job.workers},
          {"threads", job.threads},
          {"model", job.model},
          {"backend", job.backend},
          {"resident_mib", job.resident_mib},
          {"global_batch", job.global_batch}};
}

void print_events(const ElasticBenchOptions& options, const std::string& title,
                  const JsonFields& facts, const std::vector<EventSeries>& series) {
  if (options.json) {
    fmt::print("{}\n{}{}", machine_line(""), event_lines(series), summary_line(facts, series));
  } else {
    fmt::print("{}\n{}", title, event_table(series));
  }
  std::fflush(stdout);
}

int ended_early(std::size_t done, std::uint32_t wanted, int code) {
  fmt::print(stderr, "mayfly: the job ended after {} of {} events (exit code {})\n", done, wanted,
             code);
  return engine::kExitFailed;
}

double measure_microbatch_ms(const engine::JobConfig& job) {
  engine::JobConfig alone = job;
  alone.workers = 1;
  alone.threads = 1;
  alone.resident_mib = 0;
  alone.bind_host = "127.0.0.1";
  alone.run_dir = (std::filesystem::temp_directory_path() /
                   fmt::format("mayfly-microbatch-{}", static_cast<int>(::getpid())))
                      .string();
  const std::uint64_t per_step = std::max(1U, job.global_batch / std::max(1U, job.microbatch));
  const std::uint64_t steps = std::max<std::uint64_t>(2, kMicrobatchesToSettle / per_step);
  StepLog log;
  double ms = 0;
  JobLauncher launcher(alone, log, {}, [&](engine::LocalLauncher& running) {
    const elastic::JobStatus status = running.coordinator().server().status();
    if (log.last_step() > steps && !status.members.empty()) {
      ms = status.members.front().microbatch_ms;
      running.coordinator().server().stop("measured");
    }
  });
  (void)launcher.run();
  std::error_code ignored;
  std::filesystem::remove_all(alone.run_dir, ignored);
  return ms;
}

}  // namespace mayfly::bench
