#pragma once

// Plots as SVG text: lines over a plane and groups of bars, with axes, ticks and a legend. Pure; no
// thread matters.

#include <string>
#include <utility>
#include <vector>

namespace mayfly::engine {

using ChartPoint = std::pair<double, double>;

/// What belongs together has one colour and one entry of the legend.
struct ChartLines {
  std::string name;
  std::vector<std::vector<ChartPoint>> lines;  ///< points that are not finite are left out
};

struct LineChart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<ChartLines> series;
};
[[nodiscard]] std::string to_svg(const LineChart& chart);

/// A value with what it lies between; a bar that is not finite is left out.
struct ChartBar {
  double value = 0;
  double least = 0;
  double most = 0;
};

struct BarGroup {
  std::string name;
  std::vector<ChartBar> bars;  ///< one for each of the chart's names
};

struct BarChart {
  std::string title;
  std::string y_label;
  std::vector<std::string> names;
  std::vector<BarGroup> groups;
};
[[nodiscard]] std::string to_svg(const BarChart& chart);

/// Round numbers from at or below `least` to at or above `most`, about `wanted` of them.
[[nodiscard]] std::vector<double> chart_ticks(double least, double most, int wanted);

}  // namespace mayfly::engine
