#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/unit/cli/cli_fixture.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::cli {
namespace {

using ::testing::HasSubstr;

class DataCommand : public CliTest {
 protected:
  void expect_refused(const std::vector<std::string>& words, const std::string& text) {
    EXPECT_EQ(run(words), kExitUsage) << out();
    EXPECT_THAT(err(), HasSubstr(text));
    EXPECT_EQ(std::ranges::count(err(), '\n'), 1) << err();
  }

  const test_support::TemporaryFolder folder_;
};

TEST_F(DataCommand, MakesTheSetAndSaysHowLargeItIs) {
  ASSERT_EQ(run({"data", "make", folder_ / "set", "--images", "12", "--size", "40", "--json"}), 0)
      << err();
  const auto json = boost::json::parse(out()).as_object();
  EXPECT_EQ(json.at("images").as_int64(), 22);
  EXPECT_GT(json.at("bytes").as_int64(), 22 * 100);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "set/train/ring/00000011.jpg"));
}

TEST_F(DataCommand, BadInputIsOneLineAndMakesNothing) {
  expect_refused({"data"}, "data expects 'make FOLDER'");
  expect_refused({"data", "make"}, "data expects 'make FOLDER'");
  expect_refused({"data", "show", folder_ / "set"}, "data expects 'make FOLDER'");
  expect_refused({"data", "make", folder_ / "set", "--images", "0"},
                 "--images expects a whole number from 1 to 100000000, got '0'");
  expect_refused({"data", "make", folder_ / "set", "--size", "31"},
                 "--size expects a whole number from 32 to 2730, got '31'");
  expect_refused({"data", "make", folder_ / "set", "--size", "2731"},
                 "--size expects a whole number from 32 to 2730, got '2731'");
  expect_refused({"data", "make", folder_ / "set", "--seed", "x"},
                 "--seed expects a whole number from 0 to 18446744073709551615, got 'x'");
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  std::filesystem::create_directory(folder_ / "sub");
  expect_refused({"data", "make", folder_.path()}, "is not an empty folder; name another");
}

}  // namespace
}  // namespace mayfly::cli
