#include "base/result.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "base/try_assign.hpp"

namespace mayfly {
namespace {

Result<int> half(int number) {
  if (number % 2 != 0) {
    return Error{Errc::kInvalidInput, std::to_string(number) + " is odd"};
  }
  return number / 2;
}

TEST(Result, CarriesTheValue) {
  const Result<int> result = half(8);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value(), 4);
}

TEST(Result, CarriesCodeTextAndCulprit) {
  const Result<int> result(Error{Errc::kPeerLost, "rank 2 closed", MemberId{9}});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Errc::kPeerLost);
  EXPECT_EQ(result.error().detail, "rank 2 closed");
  EXPECT_EQ(result.error().culprit, MemberId{9});
}

Result<std::string> quarter(int number) {
  TRY_ASSIGN(const int once, half(number));
  int twice = 0;
  TRY_ASSIGN(twice, half(once));
  return std::to_string(twice);
}

TEST(Result, TryAssignTakesTheValueOrReturnsTheError) {
  EXPECT_EQ(quarter(12).value(), "3");
  EXPECT_EQ(quarter(6).error().detail, "3 is odd");
}

TEST(Result, MovesValuesThatCannotBeCopied) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(5));
  const std::unique_ptr<int> owned = std::move(result).value();
  EXPECT_EQ(*owned, 5);
}

TEST(ResultVoid, IsSuccessUnlessGivenAnError) {
  EXPECT_TRUE(Result<void>().ok());
  EXPECT_FALSE(Result<void>(Error{Errc::kIo, "disk full"}).ok());
}

TEST(Errc, EveryCodeHasItsOwnName) {
  std::set<std::string> names;
  const int last = static_cast<int>(Errc::kDiverged);
  for (int code = 0; code <= last; ++code) {
    names.insert(to_string(static_cast<Errc>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(last) + 1);
}

TEST(ResultDeathTest, AskingForWhatIsNotThereAborts) {
  EXPECT_DEATH(static_cast<void>(half(3).value()), "value\\(\\) of a failed Result");
  EXPECT_DEATH(static_cast<void>(half(2).error()), "error\\(\\) of a successful Result");
}

}  // namespace
}  // namespace mayfly
