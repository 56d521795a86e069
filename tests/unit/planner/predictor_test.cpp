#include "planner/predict/predictor.hpp"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "tests/unit/planner/invented.hpp"

namespace mayfly::planner {
namespace {

boost::json::object answer_to(const std::string& line) {
  static const Predictor predictor(invented_calibration());
  return boost::json::parse(predictor.answer(line)).as_object();
}

double number(const boost::json::object& answer, const char* name) {
  EXPECT_TRUE(answer.contains(name)) << boost::json::serialize(answer);
  return answer.contains(name) ? answer.at(name).to_number<double>() : 0;
}

std::string error_of(const std::string& line) {
  const boost::json::object answer = answer_to(line);
  return answer.contains("error") ? std::string(answer.at("error").as_string()) : "";
}

TEST(Predictor, AnswersWithMedianIntervalUnitAndReason) {
  const auto answer = answer_to(
      R"({"id": 7, "quantity": "step_time", "gpu": "A1", "family": "plain", "gflops": 3})");
  EXPECT_NEAR(number(answer, "median"), 0.35, 0.01);
  EXPECT_LT(number(answer, "low"), 0.35);
  EXPECT_GT(number(answer, "high"), 0.35);
  EXPECT_EQ(answer.at("unit"), "s");
  EXPECT_EQ(answer.at("because"), "5 plain networks on A1; 5 plain networks on A1, shape of B2");
  EXPECT_EQ(answer.at("id"), 7);
}

TEST(Predictor, AnswersForPercentilesAndProbabilities) {
  const std::string job =
      R"({"quantity": "job_duration", "cluster": "4xA1", "model": "net-20", "kind": "steady",
          "steps": 16000, "percentile": 95, "at_most": 1000)";
  const auto answer = answer_to(job + "}");
  EXPECT_NEAR(number(answer, "median"), 1000, 30);
  EXPECT_NEAR(number(answer, "at_percentile"), number(answer, "high"), 1e-6);
  EXPECT_GT(number(answer, "probability"), 0.2);
  EXPECT_LT(number(answer, "probability"), 0.8);
  const auto lossy = answer_to(job + R"(, "losses": [{"at_s": 500, "workers": 2}]})");
  EXPECT_NEAR(number(lossy, "median"), 1500, 45);
}

TEST(Predictor, AJobOfTheCalibrationNeedsNoSteps) {
  const auto answer =
      answer_to(R"({"quantity": "job_duration", "gpu": "B2", "workers": 1, "model": "net-20"})");
  EXPECT_NEAR(number(answer, "median"), 40000 * 0.1 / 0.97, 150);
}

TEST(Predictor, CostsFollowFromDurationsAndPrices) {
  const auto answer = answer_to(
      R"({"quantity": "job_cost", "gpu": "A1", "workers": 2, "parameter_servers": 1,
          "model": "net-20", "market": "spot", "duration_s": 1000})");
  EXPECT_NEAR(number(answer, "median"), 1000 * (2 * 0.0001 + 0.00005), 1e-9);
  const auto lossy = answer_to(
      R"({"quantity": "job_cost", "gpu": "A1", "workers": 2, "model": "net-20", "market": "spot",
          "duration_s": 1000, "losses": [{"at_s": 100}]})");
  EXPECT_NEAR(number(lossy, "median"), 0.1 + 0.01, 1e-9);
  const auto mixed_cost = [](const std::string& losses) {
    return answer_to(R"({"quantity": "job_cost", "cluster": "1xA1+2xB2", "model": "net-20",
                         "market": "spot", "duration_s": 1000, "losses": [)" +
                     losses + "]}");
  };
  const double whole = 0.1 + 2 * 0.2;
  EXPECT_NEAR(number(mixed_cost(""), "median"), whole, 1e-9);
  EXPECT_NEAR(number(mixed_cost(R"({"at_s": 400})"), "median"), whole - 0.06, 1e-9)
      << "one worker, not one of each type";
  EXPECT_NEAR(number(mixed_cost(R"({"at_s": 400}, {"at_s": 500})"), "median"), whole - 0.06 - 0.1,
              1e-9)
      << "the second is of the group that has some left";
  EXPECT_NEAR(number(mixed_cost(R"({"at_s": 400, "replaced_s": 500})"), "median"), whole, 1e-9);
  EXPECT_NEAR(number(mixed_cost(R"({"at_s": 3000, "gpu": "B2"})"), "median"), whole, 1e-9)
      << "the job had ended";
  EXPECT_EQ(mixed_cost(R"({"at_s": 400, "workers": 4})").at("error"),
            "more workers are lost than the cluster has");
  EXPECT_EQ(mixed_cost(R"({"at_s": 400, "replaced_s": 300})").at("error"),
            "losses: replaced_s is before at_s");
}

/// The answer for a job of so many steps with simulated losses. Four workers take an hour for
/// 57,600 steps.
boost::json::object simulated(const std::string& quantity, int steps, const std::string& more) {
  return answer_to(R"({"quantity": ")" + quantity +
                   R"(", "losses": "simulated", "gpu": "A1", "workers": 4, "model": "net-20",
                       "steps": )" +
                   std::to_string(steps) + more + "}");
}

TEST(Predictor, DrawsTheLossesOfAJobIfItIsToldSo) {
  const std::string north = R"(, "region": "north")";
  const std::string on_demand = R"(, "market": "on_demand")";
  const auto sure = simulated("job_losses", 576'000, on_demand);
  EXPECT_EQ(number(sure, "mean"), 0);
  EXPECT_EQ(sure.at("unit"), "servers");
  const double half = number(simulated("job_losses", 288'000, north), "mean");
  const auto whole = simulated("job_losses", 576'000, north);
  EXPECT_GT(half, 0.1);
  EXPECT_NEAR(number(whole, "mean") / half, 2, 0.5);
  EXPECT_GT(number(whole, "standard_error"), 0);
  // Without losses, the job takes 36,000 s and its start-up.
  const double undisturbed = number(simulated("job_duration", 576'000, on_demand), "mean");
  EXPECT_NEAR(undisturbed, 36'000 + 160, 1000);
  EXPECT_GT(number(simulated("job_duration", 576'000, north), "mean"), undisturbed);
  const double spot = number(simulated("job_cost", 576'000, north), "mean");
  EXPECT_NEAR(spot, 4 * 36'000 * 0.0001, 1);
  EXPECT_LT(spot, number(simulated("job_cost", 576'000, on_demand), "mean") / 2);
}

/// Lost servers are replaced by others of their machine type.
TEST(Predictor, DrawsTheLossesOfEachMachineType) {
  const auto in_north = [](const std::string& quantity, const std::string& cluster) {
    return simulated(quantity, 576'000, R"(, "region": "north", "cluster": ")" + cluster + "\"");
  };
  const auto mixed = in_north("job_losses", "2xA1+2xB2");
  ASSERT_TRUE(mixed.contains("mean")) << mixed;
  const double hours_mixed = number(in_north("job_duration", "2xA1+2xB2"), "mean");
  const double hours_a1 = number(in_north("job_duration", "4xA1"), "mean");
  EXPECT_LT(hours_mixed, hours_a1) << "B2 is faster";
  EXPECT_GT(hours_mixed, number(in_north("job_duration", "4xB2"), "mean"));
  EXPECT_GT(number(mixed, "mean"), 0);
  EXPECT_NEAR(number(in_north("job_cost", "2xA1+2xB2"), "mean"),
              hours_mixed * 2 * (0.0001 + 0.0002), 1);
  // A cluster of one type costs the same as that type with a number of workers.
  EXPECT_EQ(number(in_north("job_cost", "4xA1"), "mean"),
            number(simulated("job_cost", 576'000, R"(, "region": "north")"), "mean"));
}

TEST(Predictor, SimulatedJobsAreWholeJobsUnlessTheKindIsGiven) {
  const std::string b2 = R"(, "cluster": "1xB2", "region": "north")";
  const auto job = simulated("job_duration", 400'000, b2);
  EXPECT_EQ(job, simulated("job_duration", 400'000, b2 + R"(, "kind": "whole job")"));
  EXPECT_LT(number(simulated("job_duration", 400'000, b2 + R"(, "kind": "steady")"), "mean"),
            number(job, "mean"));
}

TEST(Predictor, TheSameSeedDrawsTheSameLosses) {
  const std::string seeded = R"(, "region": "north", "paths": 300, "seed": )";
  const auto first = simulated("job_cost", 576'000, seeded + "7");
  EXPECT_EQ(first, simulated("job_cost", 576'000, seeded + "7"));
  EXPECT_NE(number(first, "mean"), number(simulated("job_cost", 576'000, seeded + "8"), "mean"));
}

TEST(Predictor, RefusesLossesThatItCannotDraw) {
  const auto error = [](const std::string& more) {
    return std::string(simulated("job_duration", 576'000, more).at("error").as_string());
  };
  EXPECT_EQ(error(""), "region is missing");
  EXPECT_EQ(error(R"(, "region": "north", "cluster": "2xA1+1xA1")"), "cluster names A1 twice");
  EXPECT_EQ(error(R"(, "region": "north", "cluster": "90xA1+90xB2")"),
            "workers is out of range of what is simulated");
  EXPECT_EQ(error(R"(, "region": "north", "workers": 2.5)"), "workers is not a whole number");
  EXPECT_EQ(error(R"(, "market": "stocks")"), "market is neither spot nor on_demand");
  EXPECT_EQ(error(R"(, "region": "north", "paths": 0)"), "paths is out of range");
  const auto endless = simulated("job_cost", 2'000'000'000, R"(, "region": "north")");
  EXPECT_TRUE(std::string(endless.at("error").as_string()).ends_with("ask for fewer paths"));
}

TEST(Predictor, EveryModelCanBeAskedByItself) {
  const std::pair<const char*, double> cases[] = {
      {R"({"quantity": "checkpoint_time", "model": "net-10"})", 3 + 0.16 + 0.1},
      {R"({"quantity": "checkpoint_local_time", "tensors": 300})", 0.95},
      {R"({"quantity": "startup_time", "gpu": "A1", "stage": "booting"})", 40},
      {R"({"quantity": "join_time", "model": "net-160", "where": "same server"})", 30},
      {R"({"quantity": "chief_loss", "steps_since_checkpoint": 2500, "steps_per_s": 20})", 200},
      {R"({"quantity": "remaining_time", "step_of_revocation": 20000})", 1011},
      {R"({"quantity": "remaining_time", "step_of_revocation": 20000, "steps": 40000,
           "steps_per_s": 20, "steps_per_s_after_loss": 15, "replaced_after_s": 80})",
       80 + (20000 - 1200) / 20.0 + 8},
      {R"({"quantity": "revoked_share", "gpu": "A1", "region": "south", "hours": 24, "age_h": 2})",
       0.483},
      {R"({"quantity": "accuracy", "workers": 4})", 0.90},
      {R"({"quantity": "accuracy", "cluster": "2xA1+2xB2"})", 0.90},
      {R"({"quantity": "accuracy", "fraction": 0.5, "workload": "res 8w"})", 0.92},
      {R"({"quantity": "switch_time", "fraction": 0.25, "workload": "res 8w"})", 3665},
      {R"({"quantity": "divergence", "fraction": 0, "workload": "res 8w"})", 0.25},
      {R"({"quantity": "cluster_speed", "gpu": "A1", "workers": 4, "model": "net-20",
           "parameter_servers": 1, "kind": "whole job", "split": "2+2"})",
       2 / 0.25 + 2 / 0.40}};
  for (const auto& [query, truth] : cases) {
    const auto answer = answer_to(query);
    EXPECT_NEAR(number(answer, "median") / truth, 1, 0.07) << query;
    EXPECT_LE(number(answer, "low"), number(answer, "median"));
    EXPECT_GE(number(answer, "high"), number(answer, "median"));
  }
  for (const char* name : {"losses_together", "shocks_per_hour", "shock_share"}) {
    EXPECT_GT(number(answer_to(std::string(R"({"quantity": ")") + name + "\"}"), "median"), 0);
  }
  EXPECT_EQ(answer_to(R"({"quantity": "lifetime", "gpu": "A1", "region": "east"})").at("unit"),
            "h");
  EXPECT_NEAR(number(answer_to(R"({"quantity": "hour_of_day_factor", "hour": 3})"), "median"), 1,
              0.7);
}

TEST(Predictor, NamesFieldsThatDoNotMatter) {
  const auto answer =
      answer_to(R"({"quantity": "step_time", "gpu": "A1", "model": "net-10", "samples": 3})");
  EXPECT_EQ(boost::json::serialize(answer.at("ignored")), R"(["samples"])");
}

TEST(Predictor, AWrongQueryIsAnsweredWithOneError) {
  EXPECT_EQ(error_of("{"), "the query is not a JSON object");
  EXPECT_EQ(error_of("{}"), "quantity is missing");
  EXPECT_TRUE(
      error_of(R"({"quantity": "colour"})").starts_with("quantity 'colour' is not one of "));
  EXPECT_EQ(error_of(R"({"quantity": "step_time", "model": "net-10"})"), "gpu is missing");
  EXPECT_EQ(error_of(R"({"quantity": "step_time", "gpu": 3})"), "gpu is not a text");
  EXPECT_EQ(error_of(R"({"quantity": "cluster_speed", "cluster": "A1", "model": "net-10"})"),
            "cluster 'A1' is not written like 2xK80+1xV100");
  EXPECT_EQ(error_of(R"({"quantity": "cluster_speed", "gpu": "A1", "workers": -1})"),
            "workers is out of range");
  EXPECT_EQ(error_of(R"({"quantity": "job_duration", "gpu": "A1", "workers": 1,
                         "model": "net-10"})"),
            "steps is missing");
  EXPECT_EQ(error_of(R"({"quantity": "job_duration", "gpu": "A1", "workers": 1, "model": "net-20",
                         "losses": [{"at": 3}]})"),
            "at_s is missing");
}

}  // namespace
}  // namespace mayfly::planner
