#include "engine/compare/svg_chart.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace mayfly::engine {
namespace {

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) {
    ++count;
  }
  return count;
}

TEST(ChartTicks, AreRoundAndEncloseTheValues) {
  EXPECT_EQ(chart_ticks(0, 100, 6), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  for (const auto& [least, most] :
       {std::pair(0.0, 0.93), std::pair(-3.0, 17.0), std::pair(1e-9, 3e-9), std::pair(5.0, 5.0),
        std::pair(0.0, 0.0), std::pair(1e12, 1.7e12)}) {
    const std::vector<double> ticks = chart_ticks(least, most, 6);
    ASSERT_GE(ticks.size(), 2U);
    EXPECT_LE(ticks.front(), least);
    EXPECT_GE(ticks.back(), most);
    EXPECT_LE(ticks.size(), 13U);
  }
}

TEST(LineChart, HasAPointForEveryNumberAndALineForEverySeries) {
  LineChart chart{"Accuracy & <time>", "seconds", "%", {}};
  chart.series.push_back({"bsp", {{{0, 1}, {1, 2}, {2, NAN}}, {{0, 3}}}});
  chart.series.push_back({"asp", {{}}});
  const std::string svg = to_svg(chart);
  EXPECT_EQ(count_of(svg, "<circle"), 3U);
  EXPECT_EQ(count_of(svg, "<polyline"), 3U);
  EXPECT_NE(svg.find("Accuracy &amp; &lt;time&gt;"), std::string::npos);
  EXPECT_NE(svg.find(">asp</text>"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
}

TEST(BarChart, LeavesOutWhatWasNotMeasured) {
  BarChart chart{"Speed", "images/s", {"bsp", "asp"}, {}};
  chart.groups.push_back({"clean", {{10, 9, 11}, {20, 20, 20}}});
  chart.groups.push_back({"kill", {{NAN, NAN, NAN}, {5, 5, 5}}});
  const std::string svg = to_svg(chart);
  EXPECT_EQ(count_of(svg, "<rect"), 1U + 3U + 2U) << "background, bars, legend";
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(Charts, OfNothingAreStillCharts) {
  EXPECT_NE(to_svg(LineChart{}).find("</svg>"), std::string::npos);
  EXPECT_NE(to_svg(BarChart{}).find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace mayfly::engine
