#include "engine/compare/charts_page.hpp"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>

namespace mayfly::engine {
namespace {

/// The data that the page's script reads.
boost::json::value data_of(const std::string& html) {
  const std::string mark = "id=\"data\">";
  const std::size_t begin = html.find(mark) + mark.size();
  return boost::json::parse(html.substr(begin, html.find("</script>", begin) - begin));
}

TEST(ChartsPage, HasEveryNumberOfItsCharts) {
  ChartsPage page;
  page.line_charts = {{"Accuracy", "seconds", "%", {{"bsp", {{{0, 1}, {1, 2}, {2, NAN}}}}}}};
  page.bar_charts = {{"Speed", "images/s", {"bsp", "asp"}, {{"clean", {{{10, 9, 11}}, {}}}}}};
  const boost::json::value data = data_of(to_html(page));
  const boost::json::value& line = data.at_pointer("/line_charts/0/series/0/lines/0");
  EXPECT_EQ(line.at(1).at(1).to_number<double>(), 2);
  EXPECT_TRUE(line.at(2).at(1).is_null()) << "the script leaves it out";
  const boost::json::value& bars = data.at_pointer("/bar_charts/0/groups/0/bars");
  EXPECT_EQ(bars.at(0).at("most").to_number<double>(), 11);
  EXPECT_TRUE(bars.at(1).is_null());
}

TEST(ChartsPage, ItsTextsCannotBecomeElements) {
  ChartsPage page;
  page.title = "</script><script>alert(1)</script>";
  const std::string html = to_html(page);
  EXPECT_EQ(html.find("alert(1)</script>"), std::string::npos);
  EXPECT_EQ(data_of(html).at("title").as_string(), page.title.c_str());
}

TEST(ChartsPage, RunsNoScriptButItsOwnAndLoadsNothing) {
  const std::string html = to_html({});
  EXPECT_NE(html.find("default-src 'none'; script-src 'sha256-"), std::string::npos);
  EXPECT_EQ(html.find(" src="), std::string::npos);
}

}  // namespace
}  // namespace mayfly::engine
