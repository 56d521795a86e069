#pragma once

// The report of a comparison as one HTML file with its charts, which opens from a disk without a
// network. uPlot draws them in the browser (engine/compare/page). Pure; any thread.

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mayfly::engine {

using ChartPoint = std::pair<double, double>;

/// Lines of one colour and one entry of the legend, for example the runs of one variant.
struct ChartLines {
  std::string name;
  std::vector<std::vector<ChartPoint>> lines;  ///< points that are not finite are left out

  static void fields(auto& io, auto& r) {
    io("name", r.name);
    io("lines", r.lines);
  }
};

struct LineChart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<ChartLines> series;

  static void fields(auto& io, auto& r) {
    io("title", r.title);
    io("x_label", r.x_label);
    io("y_label", r.y_label);
    io("series", r.series);
  }
};

/// A mean with the range of its values.
struct ChartBar {
  double value = 0;
  double least = 0;
  double most = 0;

  static void fields(auto& io, auto& r) {
    io("value", r.value);
    io("least", r.least);
    io("most", r.most);
  }
};

struct BarGroup {
  std::string name;
  std::vector<std::optional<ChartBar>> bars;  ///< one for each name of the chart; nothing: no value

  static void fields(auto& io, auto& r) {
    io("name", r.name);
    io("bars", r.bars);
  }
};

struct BarChart {
  std::string title;
  std::string y_label;
  std::vector<std::string> names;
  std::vector<BarGroup> groups;

  static void fields(auto& io, auto& r) {
    io("title", r.title);
    io("y_label", r.y_label);
    io("names", r.names);
    io("groups", r.groups);
  }
};

/// The contents of the page, from top to bottom.
struct ChartsPage {
  std::string title;
  std::string command;  ///< the one that made the comparison
  std::string table;    ///< as a terminal shows it
  std::string note;     ///< how to read the table and the charts
  std::vector<LineChart> line_charts;
  std::vector<BarChart> bar_charts;

  static void fields(auto& io, auto& r) {
    io("title", r.title);
    io("command", r.command);
    io("table", r.table);
    io("note", r.note);
    io("line_charts", r.line_charts);
    io("bar_charts", r.bar_charts);
  }
};

/// The text of the HTML file. Names and texts cannot become elements or scripts of the page.
[[nodiscard]] std::string to_html(const ChartsPage& page);

}  // namespace mayfly::engine
