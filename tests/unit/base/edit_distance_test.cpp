#include "base/edit_distance.hpp"

#include <gtest/gtest.h>

namespace mayfly {
namespace {

TEST(EditDistance, CountsTheChangesBetweenTwoNames) {
  EXPECT_EQ(edit_distance("resnet20", "resnet20"), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("resnt20", "resnet20"), 1U);
  EXPECT_EQ(edit_distance("resnet21", "resnet20"), 1U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

TEST(EditDistance, TwoSwappedNeighboursAreOneMistake) {
  EXPECT_EQ(edit_distance("wokrers", "workers"), 1U);
}

}  // namespace
}  // namespace mayfly
