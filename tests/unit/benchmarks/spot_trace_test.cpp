#include "benchmarks/elastic/goodput_model.hpp"

#include <gtest/gtest.h>

namespace mayfly::bench {
namespace {

TEST(SpotTrace, ReadsRowsInOrder) {
  const auto rows = parse_spot_trace("# Bamboo\n0,add,node1\n0,add,node2\r\n\n500,remove,node1\n");
  ASSERT_TRUE(rows.ok()) << rows.error().detail;
  ASSERT_EQ(rows.value().size(), 3u);
  EXPECT_EQ(rows.value()[1].node, "node2");
  EXPECT_TRUE(rows.value()[1].add);
  EXPECT_EQ(rows.value()[2].ms, 500u);
  EXPECT_FALSE(rows.value()[2].add);
}

TEST(SpotTrace, NamesTheLineAndWhatIsWrongWithIt) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"0,add", "line 1: '0,add' is not MILLISECONDS,add|remove,NODE"},
      {"0,add,a,b", "line 1: '0,add,a,b' is not"},
      {"0,add,a\nsoon,add,b", "line 2: 'soon' is not a number of milliseconds"},
      {",add,b", "line 1: '' is not a number of milliseconds"},
      {"-1,add,b", "line 1: '-1' is not a number of milliseconds"},
      {"99999999999999999999,add,b", "is not a number of milliseconds"},
      {"0,Add,b", "line 1: 'Add' is neither add nor remove"},
      {"0,add,", "line 1: the node has no name"},
      {"# x\n5,add,a\n4,add,b", "line 3: 4 ms is before the row above"},
      {"0,add,a\n1,add,a", "line 2: node a is there already"},
      {"0,add,a\n1,remove,b", "line 2: there is no node b"},
      {"", "the trace has no rows"},
      {"# nothing\n", "the trace has no rows"}};
  for (const auto& [text, complaint] : cases) {
    const auto rows = parse_spot_trace(text);
    ASSERT_FALSE(rows.ok()) << text;
    EXPECT_EQ(rows.error().code, Errc::kInvalidInput);
    EXPECT_NE(rows.error().detail.find(complaint), std::string::npos) << rows.error().detail;
  }
}

TEST(SpotTrace, LevelsCountNodesAtEachMoment) {
  const auto rows =
      parse_spot_trace("0,add,a\n0,add,b\n10,remove,a\n10,add,c\n20,add,d\n30,remove,b\n");
  ASSERT_TRUE(rows.ok());
  const std::vector<SpotLevel> expected = {
      {0, 2, false}, {10, 2, true}, {20, 3, false}, {30, 2, true}};
  EXPECT_EQ(levels_of(rows.value()), expected);
}

TEST(SpotTrace, ASmallerMarketKeepsProportionsAndAtLeastOneNode) {
  const std::vector<SpotLevel> levels = {
      {0, 32, false}, {10, 31, true}, {20, 16, true}, {30, 1, true}, {40, 32, false}};
  const std::vector<SpotLevel> expected = {
      {0, 4, false}, {20, 2, true}, {30, 1, true}, {40, 4, false}};
  EXPECT_EQ(scaled(levels, 4), expected);
  EXPECT_EQ(scaled(levels, 64), levels) << "a market is never made larger";
}

}  // namespace
}  // namespace mayfly::bench
