#include "planner/calibration/calibration.hpp"

#include <gtest/gtest.h>

namespace mayfly::planner {
namespace {

constexpr const char* kStarts =
    "class,gpu,provision_s,staging_s,booting_s\n"
    "on_demand,A1,1.5,20,40\n"
    "\"spot, small\",A1,2,30.5,41\r\n";

std::string complaint(const std::string& name, const std::string& text) {
  Calibration calibration;
  const Result<void> added = add_table(name, text, calibration);
  return added.ok() ? "" : added.error().detail;
}

TEST(Calibration, ReadsRowsByTheNamesOfTheColumns) {
  Calibration calibration;
  ASSERT_TRUE(add_table("startup_untrimmed.csv", kStarts, calibration).ok());
  ASSERT_EQ(calibration.startups.size(), 2U);
  EXPECT_EQ(calibration.startups[1].market_class, "spot, small");
  EXPECT_EQ(calibration.startups[1].staging_s, 30.5);
  const char* reordered = "usd_per_second,note,market,resource\n0.001,old,spot,1xA1 server\n";
  ASSERT_TRUE(add_table("prices.csv", reordered, calibration).ok());
  EXPECT_EQ(calibration.prices[0].resource, "1xA1 server");
  EXPECT_EQ(calibration.prices[0].usd_per_second, 0.001);
}

TEST(Calibration, AnEmptyFieldIsAllowedWhereTheColumnIsOptional) {
  Calibration calibration;
  const char* text = "what,item,mean_s,sd_s\nstart,A1,70,\n";
  ASSERT_TRUE(add_table("replacement.csv", text, calibration).ok());
  EXPECT_FALSE(calibration.replacements[0].sd_s.has_value());
  EXPECT_EQ(complaint("replacement.csv", "what,item,mean_s,sd_s\nstart,A1,,3\n"),
            "replacement.csv:2: mean_s is '', not a number of at least 0");
}

TEST(Calibration, TheMachineTypeOfATableOverRegionsIsInTheNameOfItsFile) {
  Calibration calibration;
  const char* text = "split_of_4_workers,duration_s,steps_per_s\n3+1,100,7\n";
  ASSERT_TRUE(add_table("cross_region_a1.csv", text, calibration).ok());
  EXPECT_EQ(calibration.cross_region[0].gpu, "A1");
}

TEST(Calibration, KnowsItsFilesByName) {
  EXPECT_TRUE(is_calibration_file("cross_region_a1.csv"));
  EXPECT_TRUE(is_calibration_file("step_time.csv"));
  EXPECT_FALSE(is_calibration_file("step_time.txt"));
  EXPECT_FALSE(is_calibration_file("step_times.csv"));
}

TEST(Calibration, ADamagedTableIsRefusedInOneLineAndChangesNothing) {
  const std::string head = "class,gpu,provision_s,staging_s,booting_s\n";
  const auto starts = [&](const std::string& text) {
    return complaint("startup_untrimmed.csv", text);
  };
  EXPECT_EQ(starts(head + "on_demand,A1,1,2,x\n"),
            "startup_untrimmed.csv:2: booting_s is 'x', not a number of at least 0");
  EXPECT_EQ(starts(head + "\non_demand,A1,1,2,-3\n"),
            "startup_untrimmed.csv:3: booting_s is '-3', not a number of at least 0");
  EXPECT_EQ(starts(head + "on_demand,A1,1,2,nan\n"),
            "startup_untrimmed.csv:2: booting_s is 'nan', not a number of at least 0");
  EXPECT_EQ(starts(head + "on_demand,A1,1,2\n"), "startup_untrimmed.csv:2: 4 fields instead of 5");
  EXPECT_EQ(starts(head + "\"on_demand,A1,1,2,3\n"),
            "startup_untrimmed.csv:2: a quote is not closed at the end of its field");
  EXPECT_EQ(starts("class,gpu,provision_s,staging_s\n"),
            "startup_untrimmed.csv: has no column booting_s");
  EXPECT_EQ(starts("class,class\n"), "startup_untrimmed.csv:1: two columns are named class");
  EXPECT_EQ(starts(""), "startup_untrimmed.csv: has no line with the names of columns");
  EXPECT_EQ(starts("\xff"), "startup_untrimmed.csv: not a text in UTF-8");
  EXPECT_EQ(complaint("other.csv", head), "other.csv: no table of a calibration has this name");

  Calibration calibration;
  EXPECT_FALSE(
      add_table("startup_untrimmed.csv", kStarts + std::string("a,b,c,d,e\n"), calibration).ok());
  EXPECT_TRUE(calibration.startups.empty());
}

}  // namespace
}  // namespace mayfly::planner
