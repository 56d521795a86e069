#include "base/parse.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace mayfly {
namespace {

TEST(Parse, SizesHaveUnitsOfPowersOfTwoOrTen) {
  for (const auto& [text, bytes] :
       {std::pair("8GiB", std::uint64_t{8} << 30), std::pair("1.5MiB", std::uint64_t{3} << 19),
        std::pair("500MB", std::uint64_t{500'000'000}), std::pair("4kB", std::uint64_t{4000}),
        std::pair("4096", std::uint64_t{4096}), std::pair("7B", std::uint64_t{7}),
        std::pair("0", std::uint64_t{0})}) {
    EXPECT_EQ(bytes_in(text), bytes) << text;
  }
  for (const char* text : {"", "GiB", "8 GiB", "8gib", "-1", "8GiBs", "1e30TB", "nan", "0x10"}) {
    EXPECT_EQ(bytes_in(text), std::nullopt) << text;
  }
  EXPECT_EQ(bytes_in("3kB", 1, 2000), std::nullopt);
  EXPECT_EQ(bytes_in("2kB", 1, 2000), 2000U);
}

}  // namespace
}  // namespace mayfly
