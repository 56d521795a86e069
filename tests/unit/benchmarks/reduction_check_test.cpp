#include "benchmarks/ranks/reduction_check.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace mayfly::bench {
namespace {

using collectives::DataType;

template <typename T>
std::vector<T> sum_over(std::uint32_t ranks, std::size_t count, DataType type, std::uint64_t salt) {
  std::vector<T> total(count);
  std::vector<T> one(count);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    fill_contribution(one.data(), count, type, rank, salt);
    for (std::size_t i = 0; i < count; ++i) {
      total[i] += one[i];
    }
  }
  return total;
}

TEST(ReductionCheck, AcceptsTheSumOfAllContributions) {
  for (const std::uint32_t ranks : {1U, 2U, 5U, 64U, 1000U}) {
    const auto floats = sum_over<float>(ranks, 1001, DataType::kFloat32, 7);
    EXPECT_TRUE(check_sum(floats.data(), floats.size(), DataType::kFloat32, ranks, 7).ok());
    const auto ints = sum_over<std::int32_t>(ranks, 1001, DataType::kInt32, 8);
    EXPECT_TRUE(check_sum(ints.data(), ints.size(), DataType::kInt32, ranks, 8).ok());
  }
}

TEST(ReductionCheck, NamesAnySingleWrongElement) {
  const auto right = sum_over<float>(4, 100, DataType::kFloat32, 1);
  for (const std::size_t wrong : {std::size_t{0}, std::size_t{57}, std::size_t{99}}) {
    auto sums = right;
    sums[wrong] += 1;
    const Result<void> checked = check_sum(sums.data(), 100, DataType::kFloat32, 4, 1);
    ASSERT_FALSE(checked.ok());
    EXPECT_EQ(checked.error().code, Errc::kDiverged);
    EXPECT_NE(checked.error().detail.find("element " + std::to_string(wrong) + " of 100"),
              std::string::npos);
  }
}

TEST(ReductionCheck, RejectsASumThatLacksARankOrIsOld) {
  const auto sums = sum_over<std::int32_t>(3, 100, DataType::kInt32, 5);
  EXPECT_FALSE(check_sum(sums.data(), 100, DataType::kInt32, 4, 5).ok());
  EXPECT_FALSE(check_sum(sums.data(), 100, DataType::kInt32, 3, 6).ok());
}

TEST(ReductionCheck, RejectsNotANumber) {
  auto sums = sum_over<float>(2, 10, DataType::kFloat32, 5);
  sums[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(check_sum(sums.data(), 10, DataType::kFloat32, 2, 5).ok());
}

TEST(ReductionCheck, KnowsItsTypes) {
  EXPECT_EQ(parse_bench_type("fp32").value(), DataType::kFloat32);
  EXPECT_EQ(parse_bench_type("int32").value(), DataType::kInt32);
  EXPECT_EQ(parse_bench_type("fp8").error().code, Errc::kInvalidInput);
}

}  // namespace
}  // namespace mayfly::bench
