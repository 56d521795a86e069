#include "engine/compare/svg_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

namespace mayfly::engine {
namespace {

constexpr double kWidth = 860;
constexpr double kHeight = 420;
constexpr double kLeft = 80;
constexpr double kRight = 620;  // the legend is beyond
constexpr double kTop = 44;
constexpr double kBottom = 360;
constexpr int kTicks = 6;

/// Told apart by people who see colours in other ways, too.
constexpr std::array<const char*, 10> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                  "#e69f00", "#56b4e9", "#7f3c8d", "#666666",
                                                  "#a5aa00", "#000000"};

const char* colour_of(std::size_t series) {
  return kColours[series % kColours.size()];
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

/// A range of values along one side of the plot.
struct Axis {
  std::vector<double> ticks;
  double from = 0;  // place of the first tick
  double to = 1;    // of the last one

  [[nodiscard]] double place(double value) const {
    const double share = (value - ticks.front()) / (ticks.back() - ticks.front());
    return from + share * (to - from);
  }
};

class Drawing {
 public:
  explicit Drawing(const std::string& title) {
    add(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" )"
        R"(viewBox="0 0 {0} {1}" font-family="sans-serif" font-size="12">)",
        kWidth, kHeight);
    add(R"(<rect width="{}" height="{}" fill="white"/>)", kWidth, kHeight);
    text(kLeft, 24, title, R"(font-size="15" font-weight="bold")");
  }

  template <typename... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Values>(values)...);
    svg_ += '\n';
  }
  void text(double x, double y, const std::string& words, const std::string& style) {
    add(R"(<text x="{:.1f}" y="{:.1f}" {}>{}</text>)", x, y, style, escaped(words));
  }
  void line(double x1, double y1, double x2, double y2, const std::string& style) {
    add(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" {}/>)", x1, y1, x2, y2, style);
  }
  void legend(std::size_t series, const std::string& name) {
    const double y = kTop + 12 + 20 * static_cast<double>(series);
    add(R"(<rect x="{}" y="{:.1f}" width="14" height="10" fill="{}"/>)", kRight + 18, y - 9,
        colour_of(series));
    text(kRight + 38, y, name, "");
  }
  void y_axis(const Axis& axis, const std::string& label) {
    for (const double tick : axis.ticks) {
      const double y = axis.place(tick);
      line(kLeft, y, kRight, y, R"(stroke="#dddddd")");
      text(kLeft - 8, y + 4, fmt::format("{:.6g}", tick), R"(text-anchor="end")");
    }
    const double middle = (kTop + kBottom) / 2;
    text(20, middle, label,
         fmt::format(R"svg(text-anchor="middle" transform="rotate(-90 20 {:.1f})")svg", middle));
  }
  void x_label(const std::string& label) {
    text((kLeft + kRight) / 2, kHeight - 14, label, R"(text-anchor="middle")");
  }
  void frame() {
    line(kLeft, kBottom, kRight, kBottom, R"(stroke="black")");
    line(kLeft, kTop, kLeft, kBottom, R"(stroke="black")");
  }
  [[nodiscard]] std::string finish() { return std::move(svg_) + "</svg>\n"; }

 private:
  std::string svg_;
};

/// The least and the greatest of what can be drawn.
struct Range {
  double least = INFINITY;
  double most = -INFINITY;

  void take(double value) {
    if (std::isfinite(value)) {
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  [[nodiscard]] std::vector<double> ticks() const {
    return least <= most ? chart_ticks(least, most, kTicks) : chart_ticks(0, 1, kTicks);
  }
};

bool is_drawn(const ChartPoint& point) {
  return std::isfinite(point.first) && std::isfinite(point.second);
}

void draw_line(Drawing& drawing, const std::vector<ChartPoint>& points, const Axis& x,
               const Axis& y, const char* colour) {
  std::string places;
  for (const ChartPoint& point : points) {
    if (is_drawn(point)) {
      places += fmt::format("{:.1f},{:.1f} ", x.place(point.first), y.place(point.second));
      drawing.add(R"(<circle cx="{:.1f}" cy="{:.1f}" r="2.2" fill="{}"/>)", x.place(point.first),
                  y.place(point.second), colour);
    }
  }
  drawing.add(R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="1.4"/>)", places,
              colour);
}

void draw_bar(Drawing& drawing, const ChartBar& bar, double x, double width, const Axis& y,
              const char* colour) {
  const double top = y.place(bar.value);
  drawing.add(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"/>)", x, top,
              width, std::max(0.0, kBottom - top), colour);
  if (bar.most > bar.least) {
    const double middle = x + width / 2;
    drawing.line(middle, y.place(bar.least), middle, y.place(bar.most), R"(stroke="black")");
  }
}

}  // namespace

std::vector<double> chart_ticks(double least, double most, int wanted) {
  if (!(most > least)) {
    most = least + std::max(1.0, std::abs(least));
  }
  const double raw = (most - least) / std::max(1, wanted - 1);
  const double power = std::pow(10, std::floor(std::log10(raw)));
  const double digit = raw / power;
  const double step = power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
  std::vector<double> ticks;
  const double first = std::floor(least / step);
  const double last = std::ceil(most / step);
  for (double i = first; i <= last; ++i) {
    ticks.push_back(i * step);
  }
  return ticks;
}

std::string to_svg(const LineChart& chart) {
  Range x_range;
  Range y_range;
  for (const ChartLines& series : chart.series) {
    for (const auto& line : series.lines) {
      for (const ChartPoint& point : line) {
        if (is_drawn(point)) {
          x_range.take(point.first);
          y_range.take(point.second);
        }
      }
    }
  }
  const Axis x{x_range.ticks(), kLeft, kRight};
  const Axis y{y_range.ticks(), kBottom, kTop};
  Drawing drawing(chart.title);
  drawing.y_axis(y, chart.y_label);
  for (const double tick : x.ticks) {
    drawing.text(x.place(tick), kBottom + 18, fmt::format("{:.6g}", tick),
                 R"(text-anchor="middle")");
  }
  drawing.x_label(chart.x_label);
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    for (const auto& line : chart.series[i].lines) {
      draw_line(drawing, line, x, y, colour_of(i));
    }
    drawing.legend(i, chart.series[i].name);
  }
  drawing.frame();
  return drawing.finish();
}

std::string to_svg(const BarChart& chart) {
  Range range;
  range.take(0);
  for (const BarGroup& group : chart.groups) {
    for (const ChartBar& bar : group.bars) {
      range.take(bar.value);
      range.take(bar.most);
    }
  }
  const Axis y{range.ticks(), kBottom, kTop};
  Drawing drawing(chart.title);
  drawing.y_axis(y, chart.y_label);
  const double group_width =
      (kRight - kLeft) / static_cast<double>(std::max<std::size_t>(1, chart.groups.size()));
  const double width =
      0.8 * group_width / static_cast<double>(std::max<std::size_t>(1, chart.names.size()));
  for (std::size_t g = 0; g < chart.groups.size(); ++g) {
    const double begin = kLeft + group_width * static_cast<double>(g) + 0.1 * group_width;
    const BarGroup& group = chart.groups[g];
    for (std::size_t i = 0; i < group.bars.size(); ++i) {
      if (std::isfinite(group.bars[i].value)) {
        draw_bar(drawing, group.bars[i], begin + width * static_cast<double>(i), width, y,
                 colour_of(i));
      }
    }
    drawing.text(begin + 0.4 * group_width, kBottom + 18, group.name, R"(text-anchor="middle")");
  }
  for (std::size_t i = 0; i < chart.names.size(); ++i) {
    drawing.legend(i, chart.names[i]);
  }
  drawing.frame();
  return drawing.finish();
}

}  // namespace mayfly::engine
