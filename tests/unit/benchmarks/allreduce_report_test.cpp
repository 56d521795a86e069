#include "benchmarks/allreduce/allreduce_report.hpp"

#include <gmock/gmock.h>

#include <boost/json.hpp>

namespace mayfly::bench {
namespace {

using ::testing::HasSubstr;

std::vector<AllReduceRound> three_rounds(const std::string& contestant, bool is_peer,
                                         std::vector<double> medians, std::size_t bytes = 4096) {
  std::vector<AllReduceRound> rounds;
  for (std::uint32_t i = 0; i < medians.size(); ++i) {
    rounds.push_back({4, bytes, contestant, is_peer, i + 1, 10, medians[i], medians[i] / 2});
  }
  return rounds;
}

std::vector<AllReduceRound> example() {
  std::vector<AllReduceRound> rounds = three_rounds("mayfly-tcp", false, {0.003, 0.001, 0.002});
  for (const auto& more : {three_rounds("poll", true, {0.004, 0.004, 0.004}),
                           three_rounds("gloo", true, {0.005, 0.001, 0.009}),
                           three_rounds("poll", true, {0.5, 0.5, 0.5}, 1 << 20)}) {
    rounds.insert(rounds.end(), more.begin(), more.end());
  }
  return rounds;
}

TEST(AllReduceReport, RowIsTheMedianOfTheRoundsWithTheirSpread) {
  const std::vector<AllReduceRow> rows = rows_of(example());
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].contestant, "mayfly-tcp");
  EXPECT_EQ(rows[0].rounds, 3u);
  EXPECT_DOUBLE_EQ(rows[0].seconds, 0.002);
  EXPECT_DOUBLE_EQ(rows[0].low_seconds, 0.001);
  EXPECT_DOUBLE_EQ(rows[0].high_seconds, 0.003);
  EXPECT_DOUBLE_EQ(rows[0].min_seconds, 0.0005);
}

TEST(AllReduceReport, RatioIsToTheFastestPeerOfTheSameSizeAndNumber) {
  const std::vector<AllReduceRow> rows = rows_of(example());
  EXPECT_EQ(rows[0].best_peer, "poll");
  EXPECT_DOUBLE_EQ(rows[0].ratio_to_best_peer, 0.5);
  EXPECT_DOUBLE_EQ(rows[1].ratio_to_best_peer, 1.0);
  EXPECT_DOUBLE_EQ(rows[2].ratio_to_best_peer, 1.25);
  EXPECT_DOUBLE_EQ(rows[3].ratio_to_best_peer, 1.0);
}

TEST(AllReduceReport, WithoutPeersThereIsNoRatio) {
  const std::vector<AllReduceRow> rows = rows_of(three_rounds("mayfly-tcp", false, {0.001}));
  EXPECT_EQ(rows[0].best_peer, "");
  EXPECT_THAT(to_json(rows[0], "fp32"), HasSubstr("\"best_peer\": null"));
  EXPECT_THAT(to_table(rows), HasSubstr(" -\n"));
}

TEST(AllReduceReport, BusBandwidthIsThatOfTheBusiestLink) {
  AllReduceRow row;
  row.ranks = 4;
  row.bytes = 3'000'000;
  row.seconds = 0.001;
  EXPECT_DOUBLE_EQ(algorithm_bandwidth(row), 3.0);
  EXPECT_DOUBLE_EQ(bus_bandwidth(row), 4.5);
}

TEST(AllReduceReport, JsonHasEveryFigure) {
  const boost::json::object row =
      boost::json::parse(to_json(rows_of(example())[0], "int32")).as_object();
  EXPECT_EQ(row.at("kind").as_string(), "row");
  EXPECT_EQ(row.at("ranks").as_int64(), 4);
  EXPECT_EQ(row.at("bytes").as_int64(), 4096);
  EXPECT_EQ(row.at("type").as_string(), "int32");
  EXPECT_EQ(row.at("contestant").as_string(), "mayfly-tcp");
  EXPECT_FALSE(row.at("peer").as_bool());
  EXPECT_DOUBLE_EQ(row.at("median_ms").to_number<double>(), 2.0);
  EXPECT_DOUBLE_EQ(row.at("ratio_to_best_peer").to_number<double>(), 0.5);
  const boost::json::object round = boost::json::parse(to_json(example()[3], "int32")).as_object();
  EXPECT_EQ(round.at("kind").as_string(), "round");
  EXPECT_TRUE(round.at("peer").as_bool());
  EXPECT_EQ(round.at("iterations").as_int64(), 10);
}

TEST(AllReduceReport, SizesHaveTheUnitThatFits) {
  EXPECT_EQ(size_text(100), "100");
  EXPECT_EQ(size_text(4096), "4K");
  EXPECT_EQ(size_text(25U << 20), "25M");
  EXPECT_EQ(size_text((1U << 20) + 1024), "1025K");
}

}  // namespace
}  // namespace mayfly::bench
