// `mayfly plan --calibration` with the offers of a job: the command finds them in the tables.

#include <gmock/gmock.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/unit/cli/cli_fixture.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

class PlanCalibrationTest : public CliTest {
 protected:
  /// The mean cost of the plan for at most two workers on this offer.
  double cost_on(const std::string& folder, const std::string& offer) {
    EXPECT_EQ(
        run({"plan", "--calibration", folder, "--max-workers", "2", "--network", "net-20",
             "--steps", "20000", "--parameter-servers", "0", "--cloud-offers", offer, "--json"}),
        0)
        << err();
    EXPECT_THAT(out(), Not(HasSubstr("the folder contains no measurements of it")));
    const boost::json::value plan = boost::json::parse(out());
    return plan.at("chosen").at("cost").at("mean").to_number<double>();
  }

  /// A copy of the invented folder in which machine type A1 has another name.
  std::string renamed(const std::string& name) {
    for (const auto& file : std::filesystem::directory_iterator(MAYFLY_INVENTED_DIR)) {
      std::stringstream text;
      text << std::ifstream(file.path()).rdbuf();
      std::string rows = text.str();
      for (std::size_t at = 0; (at = rows.find("A1", at)) != std::string::npos;) {
        rows.replace(at, 2, name);
        at += name.size();
      }
      std::ofstream(folder_ / file.path().filename().string()) << rows;
    }
    return folder_.path();
  }

  test_support::TemporaryFolder folder_;
};

TEST_F(PlanCalibrationTest, AZoneOfARegionOfTheTablesHasTheLifetimesOfTheRegion) {
  EXPECT_EQ(cost_on(MAYFLY_INVENTED_DIR, "A1@south-b:spot=0.5"),
            cost_on(MAYFLY_INVENTED_DIR, "A1@south:spot=0.5"));
}

TEST_F(PlanCalibrationTest, ATypeWithAnAcceleratorHasTheNameThatFitGaveIt) {
  const double cost = cost_on(MAYFLY_INVENTED_DIR, "A1@south:spot=0.5");
  EXPECT_NEAR(cost_on(renamed("n1-t4:1"), "n1+t4:1@south:spot=0.5"), cost, 0.01 * cost);
}

TEST_F(PlanCalibrationTest, AnOfferWithoutATypeHasTheNameThatFitGaveIt) {
  const double cost = cost_on(MAYFLY_INVENTED_DIR, "A1@south:spot=0.5");
  EXPECT_NEAR(cost_on(renamed("a-server"), "@south:spot=0.5"), cost, 0.01 * cost);
}

}  // namespace
}  // namespace mayfly::cli
