#include "benchmarks/reform/reform_report.hpp"

#include <gmock/gmock.h>

#include <boost/json.hpp>
#include <sstream>

namespace mayfly::bench {
namespace {

using ::testing::HasSubstr;

std::vector<ReformTrial> trials() {
  std::vector<ReformTrial> list;
  for (int i = 1; i <= 100; ++i) {
    list.push_back({true, 0.1 * i, 0.2 * i, 0.3 * i, 0.4 * i, 1.0 * i});
    list.push_back({false, 1, 2, 3, 4, 5});
  }
  return list;
}

TEST(ReformReport, PercentilesAreKeptApartByKindOfChange) {
  std::istringstream lines(to_json_lines(trials(), "unix", 8));
  std::vector<boost::json::object> rows;
  int single = 0;
  for (std::string line; std::getline(lines, line);) {
    const boost::json::object object = boost::json::parse(line).as_object();
    if (object.at("kind").as_string() == "row") {
      rows.push_back(object);
    } else {
      ++single;
    }
  }
  EXPECT_EQ(single, 200);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("change").as_string(), "loss");
  EXPECT_EQ(rows[0].at("trials").as_int64(), 100);
  EXPECT_EQ(rows[0].at("ranks").as_int64(), 8);
  EXPECT_NEAR(rows[0].at("known_p50_ms").to_number<double>(), 50, 1);
  EXPECT_NEAR(rows[0].at("known_p99_ms").to_number<double>(), 99, 1);
  EXPECT_EQ(rows[0].at("known_max_ms").to_number<double>(), 100);
  EXPECT_EQ(rows[1].at("change").as_string(), "planned");
  EXPECT_EQ(rows[1].at("known_max_ms").to_number<double>(), 5);
}

TEST(ReformReport, TableSaysWhatItIsAbout) {
  const std::string text = to_text(trials(), "gloo", 8);
  EXPECT_THAT(text, HasSubstr("8 members over gloo"));
  EXPECT_THAT(text, HasSubstr("loss      known"));
  EXPECT_THAT(text, HasSubstr("planned   formed"));
}

}  // namespace
}  // namespace mayfly::bench
