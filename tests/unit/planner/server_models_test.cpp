#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/random.hpp"
#include "planner/models/accuracy.hpp"
#include "planner/models/checkpoint.hpp"
#include "planner/models/lifetime.hpp"
#include "planner/models/regions.hpp"
#include "planner/models/startup.hpp"
#include "tests/unit/planner/invented.hpp"

namespace mayfly::planner {
namespace {

/// Checks that the prediction is within `tolerance` of the truth, and its interval contains it.
void expect_close(const Result<Forecast>& forecast, double truth, double tolerance) {
  ASSERT_TRUE(forecast.ok()) << forecast.error().detail;
  const Estimate estimate = forecast.value().summary();
  EXPECT_NEAR(estimate.median / truth, 1, tolerance) << estimate.because;
  EXPECT_LE(estimate.low, truth);
  EXPECT_GE(estimate.high, truth);
}

struct Servers {
  explicit Servers(const Calibration& measured) : calibration(measured), networks(measured) {}
  [[nodiscard]] Network network(const std::string& model) const {
    return networks.completed({model, "", {}, {}, {}, {}, {}});
  }

  Calibration calibration;
  Networks networks;
};

TEST(Networks, InferWhatATableDoesNotHave) {
  const Networks networks(invented_calibration());
  const Network network = networks.completed({"new", "plain", {}, 3e6, {}, {}, {}});
  EXPECT_NEAR(*network.gflops, 3, 1e-6);
  EXPECT_NEAR(*network.tensors, 150, 1e-6);
  EXPECT_NEAR(*network.weights_mb, 24, 1e-6);
  EXPECT_NEAR(*network.meta_mb, 3, 1e-6);
}

TEST(Checkpoints, GrowWithWeightsAndTensors) {
  const Servers servers(invented_calibration("net-40,"));
  const CheckpointTimes times(servers.calibration, servers.networks);
  const Network network = servers.networks.completed({"new", "plain", {}, 4e6, 200, {}, {}});
  expect_close(times.stored(network), 3 + 0.02 * 32 + 0.1 * 4, 0.03);
  expect_close(times.local(network), 0.65, 0.05);
  expect_close(times.stored(servers.network("net-160")), 3 + 0.02 * 128 + 1.6, 0.03);
  EXPECT_FALSE(times.stored({}).ok());
}

TEST(Startups, AreDistributionsWithTheirSlowTail) {
  const Startups startups(invented_calibration());
  const Result<Forecast> whole = startups.start("A1", "on_demand", "", "");
  ASSERT_TRUE(whole.ok());
  const Estimate estimate = whole.value().summary();
  EXPECT_GT(estimate.high - estimate.median, estimate.median - estimate.low);
  EXPECT_NEAR(estimate.median, 74, 6);
  expect_close(startups.start("B2", "on_demand", "", "booting"), 40, 0.02);
  expect_close(startups.start("C3", "on_demand", "", ""), 75, 0.08);  // from other types
  expect_close(startups.start("A1", "", "right after a revocation", ""), 70, 0.001);
  EXPECT_FALSE(startups.start("A1", "", "never", "").ok());
}

TEST(Startups, MayTakeNoTime) {
  Calibration calibration;
  calibration.startups.push_back({"on_demand", "A1", 0, 0, 0});
  calibration.replacements.push_back({"start-up asked at once", "A1", 0, {}});
  const Startups startups(calibration);
  for (const char* asked : {"", "at once"}) {
    const Result<Forecast> start = startups.start("A1", "on_demand", asked, "");
    ASSERT_TRUE(start.ok()) << start.error().detail;
    EXPECT_TRUE(std::isfinite(start.value().summary().high));
  }
}

TEST(Joins, GrowWithTheTensors) {
  const Servers servers(invented_calibration());
  const auto join = [&](const std::string& model, const std::string& where) {
    return join_time(servers.calibration, servers.networks, servers.network(model), where);
  };
  expect_close(join("net-80", "new server"), 75 + 15 * 350.0 / 750, 0.001);
  expect_close(join("net-10", "same server"), 15, 0.001);
  EXPECT_FALSE(join("net-10", "old server").ok());
}

TEST(Chiefs, TheirLossCostsWhatWasMeasuredNotWhatIsDerived) {
  const Calibration calibration = invented_calibration();
  expect_close(chief_loss(calibration, 2500, 20), 200, 0.001);
  expect_close(chief_loss(calibration, 2500, 10), 400, 0.001);
  EXPECT_EQ(chief_loss(calibration, 100, 20).value().summary().median, 0);
}

TEST(RemainingTimes, HaveAConstantThatTheFormulaLacks) {
  const Calibration calibration = invented_calibration();
  expect_close(remaining_time(calibration, 20000), 1011, 0.001);
  EXPECT_NEAR(remaining_time_constant(calibration), 8, 1);
}

TEST(Lifetimes, ARegionIsFollowedWhereItWasSeenAndThePoolElsewhere) {
  // The hazards are 0.2 and 0.03 in the first two hours, times 0.5, 1 or 2 in the three regions;
  // then 0.03.
  const Lifetimes lifetimes(invented_calibration());
  expect_close(lifetimes.revoked_share("A1", "east", 0, 2, 0), 1 - std::exp(-0.46), 0.15);
  expect_close(lifetimes.revoked_share("B2", "north", 0, 2, 0), 1 - std::exp(-0.115), 0.35);
  expect_close(lifetimes.revoked_share("A1", "south", 2, 24, 0), 1 - std::exp(-0.66), 0.1);
  const Result<Forecast> elsewhere = lifetimes.revoked_share("A1", "west", 0, 24, 0);
  expect_close(elsewhere, 1 - std::exp(-0.93), 0.15);
  const Estimate wide = elsewhere.value().summary();
  const Estimate narrow = lifetimes.revoked_share("A1", "south", 0, 24, 0).value().summary();
  EXPECT_GT(wide.high - wide.low, narrow.high - narrow.low);
  EXPECT_FALSE(Lifetimes({}).curve("A1", "east").ok());
}

TEST(Lifetimes, RegionsThatDifferMuchLaterMakeThatUncertain) {
  // Half of the regions lose nothing after two hours, and the other ones lose half of their
  // servers.
  const auto later = [](double lost_in_some, double lost_in_others) {
    Calibration calibration;
    for (int region = 0; region < 8; ++region) {
      const double lost = region % 2 == 0 ? lost_in_some : lost_in_others;
      for (const auto& [hours, share] :
           {std::pair(1.0, 0.1), std::pair(2.0, 0.2), std::pair(12.0, 0.2 + 0.8 * lost)}) {
        calibration.lifetimes_by_hour.push_back(
            {"A1", "r" + std::to_string(region), 40, hours, 40 * share});
      }
    }
    for (const double hours : {1.0, 2.0}) {
      calibration.lifetimes_by_hour.push_back({"A1", "new", 40, hours, 4 * hours});
    }
    return Lifetimes(calibration).revoked_share("A1", "new", 2, 12, 32).value().summary();
  };
  const Estimate apart = later(0, 0.5);
  EXPECT_LE(apart.low, 0.01);
  EXPECT_GE(apart.high, 0.5);
  const Estimate alike = later(0.25, 0.25);
  EXPECT_GT(alike.low, 0.08);
  EXPECT_LT(alike.high, 0.45);
}

TEST(Lifetimes, ACensoredServerCountsOnlyForTheTimeItWasSeen) {
  Calibration calibration;
  for (int i = 0; i < 100; ++i) {
    // Half of the servers are revoked after half an hour; the others end with their job after one.
    const bool is_lost = i < 50;
    calibration.server_uptimes.push_back({"2xA1", "north-a", "1", "worker",
                                          is_lost ? "revoked" : "completed",
                                          is_lost ? 1800.0 : 3600.0});
  }
  const Lifetimes lifetimes(calibration);
  // 50 losses in 75 server-hours.
  EXPECT_NEAR(lifetimes.curve("A1", "north").value().hazard(3600), 50.0 / 75, 0.02);
}

TEST(Lifetimes, AServerEndsAtACapOnlyWhereOneWasSeen) {
  Calibration calibration;
  for (int i = 0; i < 100; ++i) {
    LifetimeServerRow row;
    row.study = "own runs";
    row.gpu = "A1";
    row.zone = "north-a";
    row.launched = std::to_string(i);
    row.lifetime_s = i < 50 ? 1800 : 3600;
    row.ended_by = i < 50 ? "revoked" : "stopped";
    calibration.lifetime_servers.push_back(row);
  }
  const LifetimeTable going_on = Lifetimes(calibration).curve("A1", "north").value();
  EXPECT_EQ(going_on.cap(), kNever);
  EXPECT_NEAR(going_on.hazard(10 * 3600.0), 10 * 50.0 / 75, 0.2);
  expect_close(Lifetimes(calibration).revoked_share("A1", "north", 0, 3, 0),
               1 - std::exp(-3 * 50.0 / 75), 0.05);
  calibration.lifetime_servers.back().ended_by = "cap";
  EXPECT_EQ(Lifetimes(calibration).curve("A1", "north").value().cap(), 3600);
}

TEST(Lifetimes, NoLossIsNoCertainty) {
  Calibration calibration;
  for (int i = 0; i < 20; ++i) {
    calibration.lifetime_servers.push_back(
        {"own runs", "A1", "us-east-1a", std::to_string(i), "stopped", {}, 5 * 3600.0});
  }
  const Lifetimes lifetimes(calibration);
  EXPECT_FALSE(lifetimes.is_any_lost());
  const Estimate day = lifetimes.revoked_share("A1", "us-east-1", 0, 24, 0).value().summary();
  EXPECT_LT(day.low, 0.001);
  EXPECT_NEAR(day.high, 1 - std::exp(-1.92 * 24 / 100), 0.01);  // at most 1.92 losses in 100 h
  const Estimate soon = lifetimes.revoked_share("A1", "us-east-1", 0, 1, 0).value().summary();
  EXPECT_LT(soon.high, day.high / 10);
}

TEST(Lifetimes, AZoneOfEc2IsInItsRegion) {
  Calibration calibration;
  calibration.lifetime_servers.push_back(
      {"own runs", "A1", "us-east-1a", "1", "revoked", {}, 3600.0});
  const Lifetimes lifetimes(calibration);
  for (const char* place : {"us-east-1", "us-east-1a", "us-east-1f"}) {
    EXPECT_THAT(lifetimes.lifetime("A1", place, 0).value().because,
                testing::HasSubstr("1 server-hours of A1 in " + std::string(place)));
  }
}

TEST(Lifetimes, NoServerIsOlderThanTheCap) {
  const Lifetimes lifetimes(invented_calibration());
  EXPECT_TRUE(lifetimes.lifetime("A1", "east", 23).ok());
  EXPECT_EQ(lifetimes.lifetime("A1", "east", 24).error().code, Errc::kInvalidInput);
  EXPECT_EQ(lifetimes.revoked_share("A1", "east", 24, 30, 0).value().summary().high, 0);
}

TEST(Lifetimes, LossesOfABatchWithinTwoMinutesAreOneShock) {
  Calibration calibration;
  for (const double lifetime_s : {3600.0, 3610.0, 3700.0, 20000.0}) {
    calibration.lifetime_servers.push_back(
        {"batches", "A1", "north-a", "monday", "revoked", 0.0, lifetime_s});
  }
  const LossBursts bursts = Lifetimes(calibration).bursts().value();
  // Three losses so close together are possible by chance, but not likely.
  EXPECT_NEAR(bursts.share_of_losses, 0.75, 0.05);
  EXPECT_DOUBLE_EQ(bursts.share_taken, 0.75);
  EXPECT_NEAR(bursts.shocks_per_hour, 3600.0 / 20000, 0.015);
  EXPECT_FALSE(Lifetimes({}).bursts().ok());
}

/// Servers that live for a minute on average are always lost within two minutes of each other.
TEST(Lifetimes, ManyLossesOneByOneAreNoShocks) {
  Calibration calibration;
  RandomStream random{CounterRandom(1)};
  for (int batch = 0; batch < 5; ++batch) {
    for (int server = 0; server < 8; ++server) {
      calibration.lifetime_servers.push_back({"batches", "A1", "north-a", std::to_string(batch),
                                              "revoked", 0.0, -60 * std::log(1 - random.unit())});
    }
  }
  EXPECT_LT(Lifetimes(calibration).bursts().value().share_of_losses, 0.1);
}

TEST(Lifetimes, AnHourOfTheDayCountsByItsExposure) {
  Calibration calibration;
  for (int i = 0; i < 400; ++i) {
    // Servers are launched at 0 and 12 o'clock in turn. All losses are at 14:30.
    const bool is_noon = i % 2 == 1;
    const bool is_lost = i % 8 < 2;
    const double hours = is_lost ? (is_noon ? 2.5 : 14.5) : 24;
    calibration.lifetime_servers.push_back({"", "A1", "north-a", std::to_string(i),
                                            is_lost ? "revoked" : "cap", is_noon ? 12.0 : 0.0,
                                            3600 * hours});
  }
  const Lifetimes lifetimes(calibration);
  EXPECT_GT(lifetimes.hour_of_day_factor(14).value().summary().low, 1.2);
  EXPECT_LT(lifetimes.hour_of_day_factor(2).value().summary().high, 1);
}

TEST(Accuracies, FallWithAsynchronousWorkersAndScatterMore) {
  const Calibration calibration = invented_calibration();
  expect_close(asynchronous_accuracy(calibration, 4), 0.90, 0.002);
  const auto width = [&](double workers) {
    const Estimate estimate = asynchronous_accuracy(calibration, workers).value().summary();
    return estimate.high - estimate.low;
  };
  EXPECT_GT(width(6), 1.5 * width(1));
}

TEST(Accuracies, ASwitchTakesItsTimeAndLeavesOutRunsThatDiverged) {
  const SwitchRuns runs = SwitchRuns::of(invented_calibration(), "res 8w").value();
  expect_close(runs.time(0.25), 0.25 * 10000 + 0.75 * 1500 + 40, 0.01);
  expect_close(runs.accuracy(0.3), 0.9175, 0.004);
  expect_close(runs.accuracy(0), 0.88, 0.006);
  EXPECT_NEAR(runs.divergence(0).summary().median, 1.5 / 6, 1e-9);
  EXPECT_LT(runs.divergence(0.5).summary().median, 0.1);
  EXPECT_FALSE(SwitchRuns::of(invented_calibration(), "other").ok());
  // If only one fraction between 0 and 1 was measured, the time of a switch at another one is known
  // only if both of these ends were measured.
  const Calibration one_end = invented_calibration("res 8w ASP only");
  Calibration two = one_end;
  std::erase_if(two.switch_runs,
                [](const SwitchRunRow& row) { return row.group.find("b50") != std::string::npos; });
  EXPECT_EQ(SwitchRuns::of(two, "res 8w").value().time(0.5).error().code, Errc::kNotFound);
  expect_close(SwitchRuns::of(two, "res 8w").value().time(0.1), 1000 + 1350 + 40, 0.01);
  expect_close(SwitchRuns::of(one_end, "res 8w").value().time(0.5), 5000 + 750 + 40, 0.01);
}

TEST(DistantWorkers, LoseTheTimeThatMeasuredSplitsShow) {
  const Servers servers(invented_calibration());
  const StepTimes step_times(servers.calibration);
  const ClusterSpeeds speeds(servers.calibration, step_times, servers.networks);
  const DistantWorkers distant(servers.calibration, step_times, speeds, servers.networks);
  const Cluster cluster{{{"A1", 4, 0}}, servers.network("net-20"), 1, kWholeJob};
  expect_close(distant.speed(cluster, "3+1"), 3 / 0.25 + 1 / 0.40, 0.03);
  expect_close(distant.speed(cluster, "1+3"), 1 / 0.25 + 3 / 0.40, 0.06);
  expect_close(distant.speed(cluster, "4"), 4 / 0.25, 0.03);
  EXPECT_EQ(distant.speed(cluster, "3+2").error().code, Errc::kInvalidInput);
}

}  // namespace
}  // namespace mayfly::planner
