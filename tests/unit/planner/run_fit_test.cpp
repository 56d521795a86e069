// Calibrations from own runs: a calibration that is fitted to invented runs predicts these runs.

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/models/cluster_speed.hpp"
#include "planner/models/startup.hpp"
#include "planner/models/work_sharing.hpp"
#include "planner/runs/run_fit.hpp"
#include "tests/unit/planner/invented.hpp"

namespace mayfly::planner {
namespace {

constexpr double kMicrobatchS = 0.1;

/// A run on a host with two cores, on which workers with one thread take `kMicrobatchS` for a
/// microbatch. `slower`: the share by which the exchange lengthens a step, for each worker after
/// the first.
RunFacts two_core_run(const std::string& name, const std::vector<int>& workers, double slower = 0) {
  RunFacts run;
  run.name = name;
  run.date = "2026-01-02";
  run.hour_of_day = 23.5;
  run.model = "net-8";
  run.family = "plain";
  run.gflops = 3;
  run.params = 1e5;
  run.tensors = 20;
  run.settings = "batch 128";
  run.microbatches = 8;
  run.threads = 1;
  run.cores = 2;
  run.machine = "box";
  for (const int count : workers) {
    for (int step = 0; step < 40; ++step) {
      const double alone = kMicrobatchS * rounds_of_step({8, 1, 2}, count);
      run.steps.push_back({alone * (1 + slower * (count - 1)), count});
    }
  }
  run.workers = {{"box", "", 1, 3600, false, true},
                 {"box", "", 1, 1800, true, true},
                 {"box", "", 2000, 1600, false, false}};
  run.starts = {{"box", "on_demand", 0, 1.5}};
  run.joins_s = {0.5, 0.7};
  run.recoveries_s = {0.02, 0.04};
  run.checkpoints_s = {0.003};
  run.weights_mb = 2;
  run.prices = {{"box", "on_demand", 0.36}};
  return run;
}

/// The calibration that a plan would read from the tables of these runs.
Calibration read_back(const std::vector<FittedRun>& runs) {
  Calibration calibration;
  for (const TableText& table : tables_of(runs)) {
    const Result<void> added = add_table(table.name, table.text, calibration);
    EXPECT_TRUE(added.ok()) << (added.ok() ? "" : added.error().detail);
  }
  return calibration;
}

Calibration calibration_of(std::vector<RunFacts> runs) {
  const auto fitted = fit_runs(std::move(runs));
  EXPECT_TRUE(fitted.ok());
  return read_back(fitted.value());
}

Estimate speed_of(const Calibration& calibration, double workers) {
  const Networks networks(calibration);
  const StepTimes steps(calibration);
  const ClusterSpeeds speeds(calibration, steps, networks);
  const auto speed =
      speeds.speed({{{"box", workers}}, networks.completed({"net-8", "", {}, {}, {}, {}, {}}), 0});
  EXPECT_TRUE(speed.ok());
  return speed.value().summary();
}

TEST(WorkSharing, WholeMicrobatchesAndSharedCoresLimitTheSpeedup) {
  const WorkSharing alone{8, 1, 0};
  EXPECT_EQ(effective_workers(alone, 1), 1);
  EXPECT_EQ(effective_workers(alone, 4), 4);
  EXPECT_EQ(effective_workers(alone, 5), 4) << "some worker still has two microbatches";
  EXPECT_EQ(effective_workers(alone, 100), 8) << "the others have none";
  const WorkSharing on_two_cores{8, 1, 2};
  EXPECT_EQ(effective_workers(on_two_cores, 2), 2);
  EXPECT_EQ(effective_workers(on_two_cores, 4), 2);
  EXPECT_EQ(effective_workers({8, 2, 2}, 4), 1) << "one worker keeps both cores busy";
}

TEST(Tables, AreReadBackAsTheyWere) {
  const Calibration before = invented_calibration();
  Calibration after;
  for (const TableText& table : tables_of({{&before, {{"run_dir", "a, \"b\"\n\xff"}}}})) {
    EXPECT_NE(table.text.find("\"a, \"\"b\"\"??\""), std::string::npos);
    ASSERT_TRUE(add_table(table.name, table.text, after).ok()) << table.name;
  }
  ASSERT_EQ(after.step_times.size(), before.step_times.size());
  for (std::size_t i = 0; i < before.step_times.size(); ++i) {
    EXPECT_EQ(after.step_times[i].step_s, before.step_times[i].step_s);
    EXPECT_EQ(after.step_times[i].model, before.step_times[i].model);
    EXPECT_EQ(after.step_times[i].sd_s, before.step_times[i].sd_s);
  }
  EXPECT_EQ(after.cluster_speeds.size(), before.cluster_speeds.size());
  EXPECT_EQ(after.prices.size(), before.prices.size());
  EXPECT_EQ(after.lifetime_servers.size(), before.lifetime_servers.size());
}

TEST(FitRuns, PredictsClustersThatWereNotMeasured) {
  const Calibration calibration = calibration_of({two_core_run("a", {1, 2})});
  for (const int workers : {1, 2, 3, 4, 8}) {
    const double truth = 1 / (kMicrobatchS * rounds_of_step({8, 1, 2}, workers));
    const Estimate speed = speed_of(calibration, workers);
    EXPECT_NEAR(speed.median / truth, 1, 0.02) << workers << " workers: " << speed.because;
    EXPECT_LT(speed.low, truth);
    EXPECT_GT(speed.high, truth);
  }
}

TEST(FitRuns, InfersALoneWorkerAndSaysSo) {
  const auto fitted = fit_runs({two_core_run("a", {3})});
  ASSERT_TRUE(fitted.ok());
  const Calibration calibration = read_back(fitted.value());
  ASSERT_EQ(calibration.step_times.size(), 1U);
  EXPECT_NEAR(calibration.step_times[0].step_s, 8 * kMicrobatchS, 1e-9);
  EXPECT_EQ(calibration.step_times[0].kind, "inferred");
  EXPECT_TRUE(std::ranges::any_of(fitted.value()[0].remarks, [](const std::string& remark) {
    return remark.find("inferred from 3 workers") != std::string::npos;
  }));
}

TEST(FitRuns, AnExchangeThatTakesTimeIsFoundOut) {
  const Calibration calibration = calibration_of({two_core_run("a", {1, 2, 4}, 0.15)});
  const double truth = 1 / (kMicrobatchS * 4 * (1 + 3 * 0.15));
  EXPECT_NEAR(speed_of(calibration, 4).median / truth, 1, 0.1);
}

TEST(FitRuns, WritesLossesTimesAndPrices) {
  const Calibration calibration = calibration_of({two_core_run("a", {2})});
  ASSERT_EQ(calibration.lifetime_servers.size(), 3U);
  EXPECT_EQ(calibration.lifetime_servers[1].ended_by, "revoked");
  EXPECT_EQ(calibration.lifetime_servers[1].launched, calibration.lifetime_servers[0].launched);
  EXPECT_EQ(calibration.lifetime_servers[2].ended_by, "stopped");
  EXPECT_NE(calibration.lifetime_servers[2].launched, calibration.lifetime_servers[0].launched);
  EXPECT_NEAR(*calibration.lifetime_servers[2].launch_hour_of_day, 23.5 + 2000 / 3600.0 - 24, 1e-9);
  ASSERT_EQ(calibration.prices.size(), 1U);
  EXPECT_NEAR(calibration.prices[0].usd_per_second, 1e-4, 1e-12);
  ASSERT_EQ(calibration.checkpoints.size(), 1U);
  EXPECT_EQ(calibration.checkpoints[0].weights_mb, 2);
  const auto recovery = recovery_time(calibration, "net-8", "lost");
  ASSERT_TRUE(recovery.ok());
  EXPECT_NEAR(recovery.value().summary().median, 0.03, 0.001);
  EXPECT_FALSE(recovery_time(calibration, "net-8", "drain").ok());
}

TEST(FitRuns, RefusesRunsOfOtherStepsAndTellsThreadsApart) {
  RunFacts other = two_core_run("b", {1});
  other.settings = "batch 256";
  const auto refused = fit_runs({two_core_run("a", {1}), other});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().detail.find("b (batch 256)"), std::string::npos);
  RunFacts threads = two_core_run("b", {1});
  threads.threads = 2;
  const Calibration calibration = calibration_of({two_core_run("a", {1}), threads});
  ASSERT_EQ(calibration.step_times.size(), 2U);
  EXPECT_EQ(calibration.step_times[0].gpu, "box-1t");
  EXPECT_EQ(calibration.step_times[1].gpu, "box-2t");
  EXPECT_EQ(calibration.prices[1].resource, "1xbox-2t server");
}

TEST(FitRuns, TellsCoresOfWorkersApart) {
  RunFacts four = two_core_run("a", {1});
  RunFacts two = two_core_run("b", {1});
  const RunFacts unknown = two_core_run("c", {1});
  four.worker_cores = 4;
  EXPECT_EQ(calibration_of({four, unknown}).step_times[0].gpu, "box") << "all that is known";
  two.worker_cores = 2;
  two.threads = 2;
  const Calibration calibration = calibration_of({four, two, unknown});
  ASSERT_EQ(calibration.step_times.size(), 3U);
  EXPECT_EQ(calibration.step_times[0].gpu, "box-1t-4c");
  EXPECT_EQ(calibration.step_times[1].gpu, "box-2t-2c");
  EXPECT_EQ(calibration.step_times[2].gpu, "box-1t");
  EXPECT_EQ(calibration.prices[0].resource, "1xbox-1t-4c server");
}

TEST(FitRuns, TakesPricesOfTheNewestRunAndSaysWhatIsMissing) {
  RunFacts older = two_core_run("a", {1});
  RunFacts newer = two_core_run("b", {1});
  newer.date = "2026-01-03";
  newer.prices[0].per_hour = 0.72;
  older.recoveries_s.clear();
  const auto fitted = fit_runs({older, newer});
  ASSERT_TRUE(fitted.ok());
  EXPECT_EQ(fitted.value()[0].name, "b");
  EXPECT_NEAR(read_back(fitted.value()).prices[0].usd_per_second, 2e-4, 1e-12);
  EXPECT_EQ(fitted.value()[1].remarks,
            std::vector<std::string>{"no worker was lost: no recovery time"});
}

}  // namespace
}  // namespace mayfly::planner
