#include "datasets/core/left_out.hpp"

#include <gtest/gtest.h>

namespace mayfly::datasets {
namespace {

TEST(LeftOut, NamesTheFirstAndCountsTheRest) {
  LeftOut left_out;
  left_out.add("a.jpg");
  EXPECT_EQ(left_out.sentence(), "1 unusable image is left out: a.jpg");
  left_out.add("b.jpg");
  EXPECT_EQ(left_out.sentence(), "2 unusable images are left out: a.jpg, b.jpg");
  while (left_out.count < LeftOut::kNamesMax) {
    left_out.add("c.jpg");
  }
  EXPECT_EQ(left_out.names.size(), LeftOut::kNamesMax);
  EXPECT_EQ(left_out.sentence().find("more"), std::string::npos);
  left_out.add("last.jpg");
  EXPECT_EQ(left_out.count, LeftOut::kNamesMax + 1);
  EXPECT_EQ(left_out.names.size(), LeftOut::kNamesMax);
  EXPECT_NE(left_out.sentence().find(" and 1 more"), std::string::npos);
}

TEST(LeftOut, CutsNamesThatAreTooLong) {
  LeftOut left_out;
  left_out.add(std::string(LeftOut::kNameBytesMax, 'x'));
  left_out.add(std::string(LeftOut::kNameBytesMax + 1, 'y'));
  EXPECT_EQ(left_out.names[0].size(), LeftOut::kNameBytesMax);
  EXPECT_EQ(left_out.names[1].size(), LeftOut::kNameBytesMax);
}

}  // namespace
}  // namespace mayfly::datasets
