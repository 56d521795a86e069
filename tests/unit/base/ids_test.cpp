#include "base/ids.hpp"

#include <gtest/gtest.h>

#include <type_traits>

namespace mayfly {
namespace {

TEST(Ids, DoNotMix) {
  static_assert(!std::is_convertible_v<Rank, MemberId>);
  static_assert(!std::is_convertible_v<std::uint64_t, ViewId>);
  static_assert(!std::is_convertible_v<Step, std::uint64_t>);
}

TEST(Ids, CompareAndCount) {
  EXPECT_LT(ViewId{3}, next(ViewId{3}));
  EXPECT_EQ(value(next(Step{41})), 42u);
  static_assert(std::is_same_v<decltype(value(Rank{})), std::uint32_t>);
}

}  // namespace
}  // namespace mayfly
