#include <gtest/gtest.h>

#include <cmath>

#include "planner/models/cluster_speed.hpp"
#include "planner/models/job.hpp"
#include "planner/models/step_time.hpp"
#include "tests/unit/planner/invented.hpp"

namespace mayfly::planner {
namespace {

Network plain(const std::string& model, double gflops) {
  return {model, "plain", gflops, gflops * 1e6, gflops * 50, {}, {}};
}

/// Checks that the prediction is within `tolerance` of the truth, and its interval contains it.
void expect_near(const Result<Forecast>& forecast, double truth, double tolerance) {
  ASSERT_TRUE(forecast.ok()) << forecast.error().detail;
  const Estimate estimate = forecast.value().summary();
  EXPECT_NEAR(estimate.median / truth, 1, tolerance) << estimate.because;
  EXPECT_LT(estimate.low, truth);
  EXPECT_GT(estimate.high, truth);
}

struct Speeds {
  explicit Speeds(const Calibration& calibration)
      : networks(calibration),
        step_times(calibration),
        cluster_speeds(calibration, step_times, networks) {}

  [[nodiscard]] Cluster cluster(std::vector<WorkerGroup> workers, const std::string& model,
                                int servers, const std::string& kind = kSteady) const {
    return {std::move(workers), networks.completed({model, "", {}, {}, {}, {}, {}}), servers, kind};
  }

  Networks networks;
  StepTimes step_times;
  ClusterSpeeds cluster_speeds;
};

double limited(double sum, double ceiling) {
  return std::pow(std::pow(sum, -4) + std::pow(ceiling, -4), -0.25);
}

TEST(StepTimes, PredictsANetworkThatWasNotMeasured) {
  const StepTimes times(invented_calibration());
  expect_near(times.step("A1", plain("new", 3)), 0.35, 0.02);
  expect_near(times.step("B2", plain("new", 12)), 0.50, 0.02);
}

TEST(StepTimes, ATypeWithOneNetworkTakesTheShapeFromOthers) {
  expect_near(StepTimes(invented_calibration()).step("C3", plain("new", 8)), 0.17, 0.05);
}

TEST(StepTimes, AFamilyWithARootTermIsFoundOut) {
  Calibration calibration;
  const auto time = [](double g) { return 0.05 + 0.2 * std::sqrt(g) + 0.03 * g; };
  for (const double g : {0.5, 1.0, 2.0, 5.0, 10.0, 20.0}) {
    calibration.step_times.push_back(
        {"A1", std::to_string(g), "wide", g, g * 1e6, 0.3, {}, {}, {}, time(g), "models"});
  }
  expect_near(StepTimes(calibration).step("A1", {"new", "wide", 7, {}, {}, {}, {}}), time(7), 0.02);
}

TEST(StepTimes, AFamilyWhoseLaunchesOverlapIsFoundOut) {
  // On the fast type the two smallest networks take as long as the host needs to launch them.
  const auto time = [](double g, double launch, double speed) {
    const double width = std::sqrt(g / 200);
    return 200 * std::max(launch, (width + 4 * width * width) / speed);
  };
  Calibration calibration;
  const auto add = [&](const std::string& gpu, double g, double launch, double speed) {
    calibration.step_times.push_back(
        {gpu, "w" + std::to_string(g), "wide", g, 1e6 * g, 0.3, 200, 10, {}, 0, "models"});
    calibration.step_times.back().step_s = time(g, launch, speed);
  };
  for (const double g : {0.5, 2.0, 6.0, 20.0}) {
    add("slow", g, 0.0006, 80);
    if (g != 6.0) {
      add("fast", g, 0.0007, 240);
    }
  }
  const Network small = {"new", "wide", 1.0, 1e6, 200, {}, {}};
  const Network large = {"new", "wide", 10.0, 1e7, 200, {}, {}};
  expect_near(StepTimes(calibration).step("fast", small), time(1.0, 0.0007, 240), 0.06);
  expect_near(StepTimes(calibration).step("fast", large), time(10.0, 0.0007, 240), 0.06);
  expect_near(StepTimes(calibration).step("slow", small), time(1.0, 0.0006, 80), 0.06);
}

TEST(StepTimes, LatencyOfOneNetworkIsNotThatOfAllNetworks) {
  Calibration calibration;
  const auto add = [&](const std::string& gpu, double params, double latency_ms, double step_s) {
    calibration.step_times.push_back({gpu,
                                      "n" + std::to_string(params),
                                      "plain",
                                      params / 1e6,
                                      params,
                                      latency_ms,
                                      100,
                                      10,
                                      {},
                                      step_s,
                                      "models"});
  };
  for (const double params : {1e6, 1e7}) {
    add("A", params, 0.3, 0.1);
    add("B", params, 0.3, 0.05);
  }
  add("A", 1e6, 30.3, 0.1 + 0.06);
  const StepTimes times(calibration);
  const Network large = {"large", "plain", 10, 1e7, 100, {}, {}};
  const Network small = {"small", "plain", 1, 1e6, 100, {}, {}};
  const auto of = [&](const std::string& gpu, const Network& network) {
    return times.latency_cost(gpu, network, 30).value().summary();
  };
  EXPECT_NEAR(of("A", small).median, 0.06, 0.003);
  EXPECT_GT(of("A", large).median, 2 * of("A", small).median);
  EXPECT_LT(of("A", large).low, 0.06) << "one measurement does not say how it grows";
  EXPECT_GT(of("A", large).high, 0.6);
  EXPECT_NEAR(of("B", small).median, 0.06, 0.003) << "it is the network that is slow";
  EXPECT_LT(of("B", small).low, of("A", small).low);
}

TEST(StepTimes, LatencyCostsMoreTheMoreParametersThereAre) {
  const StepTimes times(invented_calibration());
  const Networks networks(invented_calibration());
  const Network network = networks.completed({"net-40", "", {}, {}, {}, {}, {}});
  expect_near(times.step_with_latency("A1", network, 30.3), 0.45 + 0.04 + 0.2, 0.05);
  EXPECT_EQ(times.step_with_latency("A1", network, 0.3).value().summary().median,
            times.step("A1", network).value().summary().median);
}

TEST(StepTimes, SaysWhatIsMissing) {
  const StepTimes times(invented_calibration());
  const std::string unknown = times.step("Z9", plain("new", 1)).error().detail;
  EXPECT_TRUE(unknown.starts_with("step_time.csv has no machine type Z9; it has A1")) << unknown;
  EXPECT_EQ(times.step("A1", {"new", "plain", {}, {}, {}, {}, {}}).error().detail,
            "nothing is known of network 'new': give family and gflops");
}

TEST(ClusterSpeeds, PredictsSizesThatWereNotMeasured) {
  const Speeds speeds(invented_calibration("B2,1,net-20,8"));
  const auto of = [&](std::vector<WorkerGroup> workers, const std::string& model, int servers) {
    return speeds.cluster_speeds.speed(speeds.cluster(std::move(workers), model, servers));
  };
  expect_near(of({{"B2", 8, 0}}, "net-20", 1), limited(80, 50), 0.04);
  expect_near(of({{"A1", 6, 0}}, "net-10", 1), limited(40, 100), 0.04);
  expect_near(of({{"A1", 2, 0}, {"B2", 3, 0}}, "net-20", 1), limited(8 + 30, 50), 0.04);
  expect_near(of({{"B2", 16, 0}}, "net-20", 2), limited(160, 80), 0.05);
}

TEST(ClusterSpeeds, TheLimitOfAnUnmeasuredNetworkFollowsFromTensorsAndBytes) {
  const Speeds speeds(invented_calibration());
  expect_near(speeds.cluster_speeds.speed(speeds.cluster({{"B2", 16, 0}}, "net-40", 1)),
              limited(16 / 0.18, 25), 0.08);
}

TEST(ClusterSpeeds, WorkersThatWaitForEachOtherAreBetweenNoOverlapAndAFullOne) {
  const Speeds speeds(invented_calibration());
  const double ceiling = 1000 / (0.1 * 100 + 1.25 * 8);  // net-20
  for (const double n : {1.0, 2.0, 4.0, 8.0, 16.0}) {
    const auto waiting =
        speeds.cluster_speeds.synchronous_speed(speeds.cluster({{"B2", n, 0}}, "net-20", 1));
    ASSERT_TRUE(waiting.ok()) << waiting.error().detail;
    const Estimate estimate = waiting.value().summary();
    const auto free = speeds.cluster_speeds.speed(speeds.cluster({{"B2", n, 0}}, "net-20", 1));
    const double one = 0.1;  // seconds per step
    const double none = n / (one + (n - 1) / ceiling);
    const double full = std::min(n / one, ceiling);
    EXPECT_GT(estimate.median, 0.93 * none) << n;
    EXPECT_LT(estimate.median, 1.07 * full) << n;
    EXPECT_LT(estimate.low, none) << n;
    EXPECT_GT(estimate.high, full) << n;
    EXPECT_LT(estimate.median, 1.1 * free.value().summary().median) << n;
  }
  // A slow worker delays the other workers only in a synchronous cluster.
  const Cluster mixed = speeds.cluster({{"B2", 1, 0}, {"A1", 1, 0}}, "net-20", 1);
  EXPECT_LT(speeds.cluster_speeds.synchronous_speed(mixed).value().summary().median,
            0.85 * speeds.cluster_speeds.speed(mixed).value().summary().median);
  EXPECT_FALSE(
      speeds.cluster_speeds.synchronous_speed(speeds.cluster({{"B2", 2, 0}}, "net-20", 0)).ok());
}

TEST(ClusterSpeeds, AWholeJobIsSlowerThanItsSteadyPart) {
  const Speeds speeds(invented_calibration());
  expect_near(speeds.cluster_speeds.speed(speeds.cluster({{"B2", 4, 0}}, "net-20", 1, kWholeJob)),
              0.97 * limited(40, 50), 0.04);
}

TEST(ClusterSpeeds, FollowsItsMeasurements) {
  Calibration slower = invented_calibration();
  for (StepTimeRow& row : slower.step_times) {
    row.step_s *= row.gpu == "A1" ? 1.25 : 1;
  }
  std::erase_if(slower.cluster_speeds, [](const ClusterSpeedRow& row) { return row.gpu == "A1"; });
  const Speeds speeds(slower);
  expect_near(speeds.cluster_speeds.speed(speeds.cluster({{"A1", 1, 0}}, "net-20", 1)), 3.2, 0.03);
}

TEST(Jobs, SurvivorsOfALossContinueAtTheirSpeed) {
  const Speeds speeds(invented_calibration());
  const Cluster cluster = speeds.cluster({{"A1", 4, 0}}, "net-20", 0);
  expect_near(job_duration(speeds.cluster_speeds, cluster, 16000, {}), 1000, 0.03);
  // 400 s with four workers, 200 s with three, then again with four.
  expect_near(job_duration(speeds.cluster_speeds, cluster, 16000, {{400, "A1", 1, 600}}), 1050,
              0.03);
  expect_near(job_duration(speeds.cluster_speeds, cluster, 16000, {{500, "", 2, {}}}), 1500, 0.03);
  EXPECT_EQ(job_duration(speeds.cluster_speeds, cluster, 16000, {{500, "", 4, {}}}).error().detail,
            "no worker is left before the job is done");
  EXPECT_EQ(job_duration(speeds.cluster_speeds, cluster, 16000, {{500, "", 5, {}}}).error().detail,
            "more workers are lost than the cluster has");
}

}  // namespace
}  // namespace mayfly::planner
