// `mayfly plan` on market files: the tables, the job file, and every kind of bad input.

#include <gmock/gmock.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <set>

#include "cli/plan_market.hpp"
#include "engine/cloud/kept_plan.hpp"
#include "engine/config/cloud_offers.hpp"
#include "tests/unit/cli/cli_fixture.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kMarket = R"(
priced = 2026-11-01
calibrated = 2026-10-20

[job]
model = "resnet20"
scaling = [[1, 1000], [4, 3800]]
checkpoint_s = 0.5

[[zone]]
name = "a"
shocks_per_hour = 0.1
share = 0.5

[[offer]]
type = "small"
zone = "a"
price = 0.10
images_per_second = 1000
start_up_s = [60, 80, 110]
lost_by_hour = [[1, 0.2], [8, 0.3], [24, 0.5]]
lifetime_cap_hours = 24
refused = 0.1
stock_out_s = [60, 600]

[[offer]]
type = "small"
zone = "b"
price = 0.11
start_up_s = 70
mean_lifetime_hours = 20

[[offer]]
type = "small"
zone = "a"
market = "on_demand"
price = 0.35
start_up_s = 70

[[offer]]
type = "big"
zone = "a"
price = 0.15
start_up_s = 70
mean_lifetime_hours = 20
)";

class PlanTest : public CliTest {
 protected:
  PlanTest() { write("market.toml", kMarket); }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  int plan_with(std::vector<std::string> more) {
    std::vector<std::string> words = {"plan",    "--market",    folder_ / "market.toml",
                                      "--steps", "800000",      "--max-workers",
                                      "8",       "--price-age", "100000"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }

  test_support::TemporaryFolder folder_;
};

TEST_F(PlanTest, PrintsARankedTableWithReasonsAndDates) {
  ASSERT_EQ(plan_with({"--deadline", "10h"}), 0) << err();
  EXPECT_THAT(out(), HasSubstr("102400000 images of resnet20; 3 offers, prices of 2026-11-01, "
                               "calibration of 2026-10-20"));
  EXPECT_THAT(out(), HasSubstr("not planned with: big in a (spot): "));
  EXPECT_THAT(out(), HasSubstr("does not specify its images_per_second"));
  EXPECT_THAT(out(), HasSubstr("   1 *"));
  EXPECT_THAT(out(), HasSubstr("is the cheapest of the"));
  EXPECT_THAT(out(), HasSubstr("A deadline below"));
  EXPECT_THAT(out(), HasSubstr("by Young"));
  EXPECT_THAT(out(), HasSubstr("by Daly; the plan's is "));
  EXPECT_THAT(out(), Not(HasSubstr("warning")));
}

TEST_F(PlanTest, JsonIsTheSameForTheSameSeed) {
  ASSERT_EQ(plan_with({"--deadline", "10h", "--json", "--seed", "7"}), 0) << err();
  const std::string first = out();
  const boost::json::object plan = boost::json::parse(first).as_object();
  EXPECT_EQ(plan.at("seed").as_int64(), 7);
  EXPECT_EQ(plan.at("deadline_s").to_number<double>(), 36000);
  const boost::json::object& chosen = plan.at("chosen").as_object();
  EXPECT_GE(chosen.at("kept").at("value").to_number<double>(), 0.95);
  EXPECT_LE(chosen.at("time_s").at("low").to_number<double>(),
            chosen.at("time_s").at("high").to_number<double>());
  EXPECT_EQ(plan.at("left_out").as_array().size(), 1U);
  ASSERT_EQ(plan_with({"--deadline", "10h", "--json", "--seed", "7"}), 0);
  EXPECT_EQ(out(), first);
}

TEST_F(PlanTest, JobFileIsOneThatTheCoordinatorTakes) {
  const std::string path = folder_ / "job.toml";
  ASSERT_EQ(plan_with({"--deadline", "10h", "--budget", "9", "--cloud-provider", "local", "--write",
                       path, "--json"}),
            0)
      << err();
  const boost::json::object plan = boost::json::parse(out()).as_object();
  const boost::json::object& chosen = plan.at("chosen").as_object();
  ASSERT_EQ(run({"coordinator", "--config", path}), 0) << err();
  EXPECT_EQ(started_, "coordinator");
  EXPECT_EQ(config_.workers, chosen.at("workers").to_number<std::uint32_t>());
  EXPECT_EQ(config_.cloud_on_demand_floor, chosen.at("on_demand_floor").to_number<std::uint32_t>());
  EXPECT_EQ(config_.cloud_provider, "local");
  EXPECT_EQ(config_.cloud_budget, 9);
  EXPECT_EQ(config_.steps, 800000U);
  EXPECT_EQ(config_.plan, folder_ / "job.plan.json") << "beside the job file";
  const auto kept = engine::read_kept_plan(config_.plan);
  ASSERT_TRUE(kept.ok()) << kept.error().detail;
  EXPECT_EQ(kept.value().plan, chosen.at("plan").as_string().c_str());
  EXPECT_EQ(kept.value().steps, 800000);
  EXPECT_EQ(kept.value().time_s.median, chosen.at("time_s").at("median").to_number<double>());
  EXPECT_GT(kept.value().speed("small", 1), 0);
  const boost::json::object& checkpoints = plan.at("checkpoints").as_object();
  EXPECT_EQ(checkpoints.at("chosen_s"), checkpoints.at("daly_s"));
  for (const boost::json::value& row : plan.at("rows").as_array()) {
    EXPECT_EQ(row.at("checkpoint_every_s"), checkpoints.at("chosen_s")) << "all rows are alike";
  }
  EXPECT_EQ(kept.value().checkpoint_every_s, checkpoints.at("chosen_s").to_number<double>());
  EXPECT_THAT(kept.value().checkpoint_because, HasSubstr("0.5 s each, "));
  EXPECT_NEAR(60 * config_.checkpoint_minutes, kept.value().checkpoint_every_s, 1e-6);
  const auto offers = engine::parse_offers(config_.cloud_offers);
  ASSERT_TRUE(offers.ok());
  ASSERT_EQ(offers.value().size(), chosen.at("offers").as_array().size());
  for (std::size_t i = 0; i < offers.value().size(); ++i) {
    EXPECT_EQ(cloud_hooks::to_string(offers.value()[i].offer),
              chosen.at("offers").as_array()[i].as_string().c_str());
    EXPECT_GT(offers.value()[i].price_per_hour, 0);
  }
  EXPECT_EQ(plan_with({"--cloud-provider", "local", "--write", path}), 2);
  EXPECT_THAT(err(), HasSubstr(path + " exists already"));
  std::filesystem::remove(path);
  EXPECT_EQ(plan_with({"--cloud-provider", "local", "--write", path}), 2);
  EXPECT_THAT(err(), HasSubstr("job.plan.json exists already"));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(plan_with({"--cloud-provider", "local", "--write", path + "/job.toml"}), 2);
  EXPECT_THAT(err(), HasSubstr("there is no folder " + path));
}

TEST_F(PlanTest, JobFileHasTheCompositionOfTheChosenRow) {
  std::string text(kMarket);
  text.replace(text.rfind("price = 0.15"), 12, "price = 0.40\nimages_per_second = 2600");
  write("market.toml", text);
  const std::string path = folder_ / "job.toml";
  ASSERT_EQ(plan_with({"--deadline", "8h", "--max-workers", "3", "--min-workers", "3",
                       "--cloud-provider", "local", "--write", path, "--json"}),
            0)
      << err();
  const boost::json::object plan = boost::json::parse(out()).as_object();
  const boost::json::object& chosen = plan.at("chosen").as_object();
  EXPECT_EQ(boost::json::serialize(chosen.at("composition")), "[2,1]") << out();
  ASSERT_EQ(run({"coordinator", "--config", path}), 0) << err();
  EXPECT_EQ(config_.workers, 3U);
  EXPECT_EQ(config_.cloud_composition, "2 x small@a:spot + 1 x big@a:spot");
  const auto kept = engine::read_kept_plan(config_.plan);
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(kept.value().speed("small", 3), kept.value().speed("big", 3)) << "of all together";
}

TEST_F(PlanTest, AnIntervalBetweenCheckpointsThatIsGivenStays) {
  write("given.toml", "checkpoint_minutes = 5\n");
  const std::string path = folder_ / "job.toml";
  for (const std::vector<std::string>& given :
       {std::vector<std::string>{"--checkpoint-minutes", "7"},
        {"--config", folder_ / "given.toml"}}) {
    std::vector<std::string> words = {"--deadline", "10h",     "--cloud-provider",
                                      "local",      "--write", path};
    words.insert(words.end(), given.begin(), given.end());
    ASSERT_EQ(plan_with(words), 0) << err();
    EXPECT_THAT(out(), Not(HasSubstr("the plan's is")));
    ASSERT_EQ(run({"coordinator", "--config", path}), 0) << err();
    EXPECT_EQ(config_.checkpoint_minutes, given[1] == "7" ? 7 : 5);
    const auto kept = engine::read_kept_plan(config_.plan);
    ASSERT_TRUE(kept.ok()) << kept.error().detail;
    EXPECT_EQ(kept.value().checkpoint_because, "");
    std::filesystem::remove(path);
    std::filesystem::remove(config_.plan);
  }
}

TEST_F(PlanTest, OffersOfTheJobHaveItsPrices) {
  write("job.toml",
        "[cloud]\nprovider = \"local\"\n[[cloud.offer]]\ntype = \"small\"\nzone = "
        "\"b\"\nprice = 0.5\n[[cloud.offer]]\ntype = \"other\"\nprice = 1\n");
  ASSERT_EQ(plan_with({"--config", folder_ / "job.toml", "--json"}), 0) << err();
  const boost::json::object plan = boost::json::parse(out()).as_object();
  EXPECT_EQ(plan.at("left_out").as_array().size(), 1U);
  EXPECT_THAT(out(), HasSubstr("has no calibration for it"));
  const boost::json::object& chosen = plan.at("chosen").as_object();
  const double hours = chosen.at("time_s").at("mean").to_number<double>() / 3600;
  const double workers = chosen.at("workers").to_number<double>();
  EXPECT_NEAR(chosen.at("cost").at("mean").to_number<double>(), 0.5 * hours * workers,
              0.05 * hours * workers);
}

TEST_F(PlanTest, AnOfferOfTheJobWithoutAPriceHasThatOfTheMarket) {
  ASSERT_EQ(plan_with({"--cloud-offers", "small@b", "--json"}), 0) << err();
  const boost::json::value plan = boost::json::parse(out());
  const boost::json::object& chosen = plan.at("chosen").as_object();
  const double hours = chosen.at("time_s").at("mean").to_number<double>() / 3600;
  const double workers = chosen.at("workers").to_number<double>();
  EXPECT_NEAR(chosen.at("cost").at("mean").to_number<double>(), 0.11 * hours * workers,
              0.02 * hours * workers);
}

TEST_F(PlanTest, LimitsOfTheCloudTableAreKeptAndWritten) {
  const std::string offers =
      "[[cloud.offer]]\ntype = \"small\"\nzone = \"b\"\nprice = 0.5\nmax_workers = 3\n";
  const std::string path = folder_ / "planned.toml";
  const auto plan_in = [&](const std::string& cloud, std::vector<std::string> more) {
    write("job.toml", "[cloud]\nprovider = \"local\"\n" + cloud + offers);
    more.insert(more.end(), {"--config", folder_ / "job.toml", "--goal", "fastest", "--json"});
    return plan_with(more);
  };
  const auto most = [this] {
    const boost::json::value plan = boost::json::parse(out());
    std::int64_t workers = 0;
    for (const boost::json::value& row : plan.at("rows").as_array()) {
      workers = std::max(workers, row.at("workers").to_number<std::int64_t>());
    }
    return workers;
  };
  ASSERT_EQ(plan_in("", {"--write", path}), 0) << err();
  EXPECT_EQ(most(), 3) << out();
  ASSERT_EQ(run({"coordinator", "--config", path}), 0) << err();
  EXPECT_EQ(config_.cloud_offers, "small@b:spot=0.5*1#3");
  ASSERT_EQ(plan_in("budget_per_hour = 1.2\n", {}), 0) << err();
  EXPECT_EQ(most(), 2) << out();
  ASSERT_EQ(plan_in("max_workers = 1\n", {}), 0) << err();
  EXPECT_EQ(most(), 1) << out();
  EXPECT_EQ(plan_in("budget_per_hour = 0.4\n", {}), 2);
  EXPECT_THAT(err(), HasSubstr("no plan with at least 1 workers keeps max_workers"));
  write("job.toml", "min_workers = 2\n[cloud]\nprovider = \"local\"\nmax_workers = 1\n" + offers);
  EXPECT_EQ(plan_with({"--config", folder_ / "job.toml"}), 2);
  EXPECT_THAT(err(), HasSubstr("workers from 2 to 1"));
}

TEST_F(PlanTest, WhatIfShowsTheDifference) {
  ASSERT_EQ(plan_with({"--deadline", "10h", "--price", "x2", "--recovery", "120s"}), 0) << err();
  EXPECT_THAT(out(), HasSubstr("if price x2, recovery 120s:"));
  EXPECT_THAT(out(), HasSubstr("was 1: time +"));
  EXPECT_THAT(out(), HasSubstr("cost +10"));
}

TEST_F(PlanTest, AWhatIfThatIsImpossibleIsAWarning) {
  ASSERT_EQ(plan_with({"--budget", "9", "--price", "x1000"}), 0) << err();
  EXPECT_THAT(out(), HasSubstr("warning: if price x1000: no plan can cost at most 9.00"));
  EXPECT_THAT(out(), HasSubstr("is the cheapest of the"));
}

TEST_F(PlanTest, APlanThatNeverFinishesSaysSo) {
  write("market.toml",
        "[[offer]]\ntype = \"a\"\nprice = 0\nimages_per_second = 1000\nstart_up_s = 1\n"
        "lost_by_hour = [[0.01, 0.999]]\nlifetime_cap_hours = 0.02\n");
  ASSERT_EQ(plan_with({"--max-workers", "1"}), 1) << err();
  EXPECT_THAT(out(), HasSubstr("   1    never "));
  EXPECT_THAT(out(), Not(HasSubstr("nan")));
}

TEST_F(PlanTest, SpeedsThatAreMissingFollowFromRelativeOnes) {
  ASSERT_EQ(plan_with({"--images-per-second", "1500"}), 0) << err();
  EXPECT_THAT(out(), Not(HasSubstr("not planned with")));
}

TEST_F(PlanTest, ScalingIsOfTheFilesFirstTypeInAnyOrderOfOffers) {
  const auto seconds_of_four_big = [this](const std::string& offers) {
    EXPECT_EQ(plan_with({"--cloud-offers", offers, "--json"}), 0) << err();
    const boost::json::value plan = boost::json::parse(out());
    for (const boost::json::value& row : plan.at("rows").as_array()) {
      if (row.at("plan").as_string() == "4 x big, spot in a") {
        return row.at("undisturbed_s").to_number<double>();
      }
    }
    return 0.0;
  };
  const double first = seconds_of_four_big("small@a=0.1,big@a=0.15*2");
  EXPECT_GT(first, 0);
  EXPECT_EQ(seconds_of_four_big("big@a=0.15*2,small@a=0.1"), first);
  const std::string market = kMarket;
  const std::size_t offers = market.find("[[offer]]");
  const std::size_t big = market.rfind("[[offer]]");
  const auto with_big_first = [&](const std::string& speed) {
    write("market.toml", market.substr(0, offers) + market.substr(big) + speed +
                             market.substr(offers, big - offers));
    return seconds_of_four_big("small@a=0.1,big@a=0.15*2");
  };
  EXPECT_GT(with_big_first(""), first);
  EXPECT_EQ(with_big_first(""), with_big_first("images_per_second = 2000\n"));
}

TEST_F(PlanTest, OldPricesAndLargeClustersAreMarked) {
  write("market.toml",
        std::string(kMarket).replace(std::string(kMarket).find("2026-11"), 7, "2020-11"));
  ASSERT_EQ(plan_with({"--price-age", "30", "--max-workers", "16", "--goal", "fastest",
                       "--global-batch", "512", "--rows", "500"}),
            0)
      << err();
  EXPECT_THAT(out(), HasSubstr("days old"));
  EXPECT_THAT(out(), HasSubstr("(more workers than measured)"));
}

TEST_F(PlanTest, LimitsThatAreKeptTooSeldomAreExitCode1) {
  const std::string path = folder_ / "job.toml";
  ASSERT_EQ(plan_with({"--deadline", "4.03h", "--probability", "0.999", "--cloud-offers",
                       "small@a:spot=0.1", "--cloud-provider", "local", "--write", path}),
            1)
      << out() << err();
  EXPECT_THAT(out(), HasSubstr("nothing is written, as no plan keeps the limits"));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_THAT(out(), HasSubstr("No plan keeps the limits with probability"));
  EXPECT_THAT(out(), HasSubstr("what it lacks is"));
}

TEST_F(PlanTest, BadInputIsOneLineAndExitCode2) {
  const auto line = [&](std::vector<std::string> more) {
    EXPECT_EQ(plan_with(std::move(more)), 2) << out();
    EXPECT_EQ(std::ranges::count(err(), '\n'), 1) << err();
    EXPECT_EQ(out(), "");
    return err();
  };
  EXPECT_THAT(line({"--deadline", "1h"}), HasSubstr("no plan can finish within 1.00 h"));
  EXPECT_THAT(line({"--budget", "0.1"}), HasSubstr("no plan can cost at most 0.10"));
  EXPECT_THAT(line({"--deadline", "soon"}), HasSubstr("--deadline soon: expects a time"));
  EXPECT_THAT(line({"--budget", "", "--write", folder_ / "x.toml"}),
              HasSubstr("--budget has an empty value"));
  EXPECT_THAT(line({"--price", "2"}), HasSubstr("expects a factor such as x2"));
  for (const char* hour : {"24", "-1", "1e18", "noon"}) {
    EXPECT_THAT(line({"--launch-hour", hour}), HasSubstr("an hour of the day, from 0 to below 24"));
  }
  EXPECT_EQ(plan_with({"--launch-hour", "0", "--max-workers", "1"}), 0) << err();
  EXPECT_THAT(line({"--goal", "best"}), HasSubstr("cheapest or fastest"));
  EXPECT_THAT(line({"--probability", "1"}), HasSubstr("between 0 and 1"));
  EXPECT_THAT(line({"--min-workers", "9"}), HasSubstr("workers from 9 to 8"));
  EXPECT_THAT(line({"--model", "resnet32"}), HasSubstr("mayfly bench step --model resnet32"));
  EXPECT_THAT(line({"--write", folder_ / "x.toml"}), HasSubstr("--write needs the provider"));
  EXPECT_THAT(line({"--cloud-offers", "big@z=1"}), HasSubstr("plan can use no offer"));
  EXPECT_THAT(line({"--market", folder_ / "none.toml"}), HasSubstr("none.toml"));
  EXPECT_EQ(run({"plan", "--steps", "10"}), 2);
  EXPECT_THAT(err(), HasSubstr("needs either --market FILE"));
  EXPECT_EQ(run({"plan", "--market", folder_ / "market.toml"}), 2);
  EXPECT_THAT(err(), HasSubstr("needs the length of the job"));
}

TEST_F(PlanTest, StudiesAreMarketsToo) {
  const std::vector<std::string> words = {"plan",    "--calibration", MAYFLY_INVENTED_DIR,
                                          "--steps", "100000",        "--max-workers",
                                          "4",       "--deadline",    "24h"};
  std::vector<std::string> known = words;
  known.insert(known.end(), {"--network", "net-10", "--json"});
  ASSERT_EQ(run(known), 0) << err();
  const boost::json::object plan = boost::json::parse(out()).as_object();
  const boost::json::object& chosen = plan.at("chosen").as_object();
  EXPECT_GT(chosen.at("accuracy").to_number<double>(), 0.5);
  EXPECT_GT(chosen.at("cost").at("mean").to_number<double>(), 0);
  EXPECT_EQ(run(words), 2);
  EXPECT_THAT(err(), HasSubstr("--network NAME"));
  std::vector<std::string> large = words;
  large.insert(large.end(), {"--family", "plain", "--gflops", "60", "--steps", "2000"});
  EXPECT_EQ(run(large), 0) << err();
  EXPECT_THAT(out(), HasSubstr("times the operations of the largest measured one"));
}

TEST_F(PlanTest, StudiesArePlannedOnTheOffersOfTheJob) {
  const std::string path = folder_ / "job.toml";
  const auto plan = [this](std::vector<std::string> more) {
    std::vector<std::string> words = {
        "plan",   "--calibration", MAYFLY_INVENTED_DIR, "--max-workers", "3", "--network",
        "net-20", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  ASSERT_EQ(plan({"--cloud-offers", "A1@north:spot=0.5#2,B2@moon=1,A1@south:on_demand=9",
                  "--cloud-provider", "local", "--parameter-servers", "0", "--write", path}),
            0)
      << err();
  const boost::json::value result = boost::json::parse(out());
  std::set<double> accuracies;
  for (const boost::json::value& row : result.at("rows").as_array()) {
    for (const boost::json::value& offer : row.at("offers").as_array()) {
      EXPECT_THAT(std::string(offer.as_string().c_str()), HasSubstr("A1 in "));
    }
    accuracies.insert(row.at("accuracy").to_number<double>());
  }
  EXPECT_EQ(accuracies.size(), 1U) << "workers that wait for each other train as one does";
  EXPECT_THAT(out(), HasSubstr("the folder contains no measurements of it"));
  ASSERT_EQ(run({"coordinator", "--config", path}), 0) << err();
  EXPECT_EQ(config_.cloud_offers.substr(0, 19), "A1@north:spot=0.5*1");
  EXPECT_GT(config_.steps, 0U) << "those of the study's jobs";
  EXPECT_EQ(plan({"--network", "net-10"}), 2);
  EXPECT_THAT(err(), HasSubstr("needs the length of the job"));
  EXPECT_EQ(plan({"--cloud-offers", "C3"}), 2);
  EXPECT_THAT(err(), HasSubstr("plan can use no offer"));
}

TEST_F(PlanTest, ChoosesParameterServersAndPolicy) {
  const std::string path = folder_ / "job.toml";
  const auto plan = [this](std::vector<std::string> more) {
    std::vector<std::string> words = {"plan",    "--calibration", MAYFLY_INVENTED_DIR,
                                      "--steps", "100000",        "--max-workers",
                                      "6",       "--network",     "net-20"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  ASSERT_EQ(plan({"--parameter-servers", "1,2,3", "--policies", "asp,bsp", "--goal", "fastest",
                  "--cloud-provider", "local", "--write", path, "--json"}),
            0)
      << err();
  const boost::json::object result = boost::json::parse(out()).as_object();
  std::set<std::string> words;
  for (const boost::json::value& row : result.at("rows").as_array()) {
    words.insert(row.as_object().at("parameter_servers").as_string().c_str());
  }
  EXPECT_EQ(words, (std::set<std::string>{
                       "ASP with 1 parameter server", "ASP with 2 parameter servers",
                       "ASP with 3 parameter servers (no cluster with so many was measured)",
                       "BSP with 1 parameter server (speed derived, not measured)",
                       "BSP with 2 parameter servers (speed derived, not measured)",
                       "BSP with 3 parameter servers (speed derived, not measured)"}));
  EXPECT_THAT(result.at("chosen").as_object().at("plan").as_string().c_str(),
              HasSubstr(", ASP with 3 parameter servers"))
      << "more servers are faster";
  ASSERT_EQ(run({"coordinator", "--config", path}), 0) << err();
  EXPECT_EQ(config_.sync, "asp");
  EXPECT_EQ(config_.ps, 3U);
  EXPECT_EQ(plan({"--parameter-servers", "0,1"}), 2);
  EXPECT_THAT(err(), HasSubstr("cannot be combined with other numbers"));
  EXPECT_EQ(plan({"--policies", "ssp"}), 2);
  EXPECT_THAT(err(), HasSubstr("expects asp, bsp"));
  EXPECT_EQ(plan({"--parameter-servers", "0", "--policies", "bsp"}), 2);
  EXPECT_EQ(plan({"--parameter-servers", "9"}), 2);
  EXPECT_THAT(err(), HasSubstr("expects 0 to 8"));
}

TEST(MarketFile, FaultsHaveAPlace) {
  const auto fault = [](const std::string& text) {
    const Result<MarketFile> read = parse_market(text, "m.toml", ".");
    return read.ok() ? "" : read.error().detail;
  };
  EXPECT_EQ(fault(kMarket), "");
  EXPECT_THAT(fault("[[offer]]\nprize = 1\n"),
              HasSubstr("m.toml line 2: prize is not a key of [[offer]]; did you mean 'price'?"));
  EXPECT_THAT(fault("[[offer]]\nprice = -1\n"), HasSubstr("price expects a number from 0"));
  EXPECT_THAT(fault("[[offer]]\nmarket = \"cheap\"\n"), HasSubstr("neither spot nor on_demand"));
  EXPECT_THAT(fault("[[offer]]\nlost_by_hour = [[2, 0.5], [1, 0.6]]\n"),
              HasSubstr("ascending order"));
  EXPECT_THAT(fault("[[offer]]\nhazard_by_hour = [1, 2]\n"), HasSubstr("24 numbers"));
  EXPECT_THAT(fault("[[offer]]\n[[offer]]\n"), HasSubstr("is given twice"));
  EXPECT_THAT(fault("[[zone]]\nname = \"a\"\n[[zone]]\nname = \"a\"\nshare = 1\n"),
              HasSubstr("zone 'a' is given twice"));
  EXPECT_THAT(fault("offer = 1\n"), HasSubstr("write [[offer]]"));
  EXPECT_THAT(fault("job = \"resnet20\"\n"), HasSubstr("m.toml line 1: write [job]"));
  EXPECT_THAT(fault("[[zone]]\n[[job]]\nmodel = \"resnet20\"\n"),
              HasSubstr("m.toml line 2: write [job]"));
  EXPECT_THAT(fault("priced = \"today\"\n"), HasSubstr("expects a date"));
  EXPECT_THAT(fault("[[zone]]\ntrace = \"none.csv\"\n"), HasSubstr("none.csv"));
  EXPECT_THAT(fault("a = [\n"), HasSubstr("m.toml line"));
}

}  // namespace
}  // namespace mayfly::cli
