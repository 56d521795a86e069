#include "engine/config/value_text.hpp"

#include <gtest/gtest.h>

namespace mayfly::engine {
namespace {

template <typename T>
void expect_read_back(T value) {
  T read{};
  ASSERT_TRUE(parse_value(read, value_text(value)).ok()) << value;
  EXPECT_EQ(read, value);
}

template <typename T>
std::string refusal(std::string_view text) {
  T value{};
  const Result<void> parsed = parse_value(value, text);
  EXPECT_EQ(value, T{}) << text;
  return parsed.ok() ? "" : parsed.error().detail;
}

TEST(ValueText, ReadsBackToTheSameValue) {
  for (const bool flag : {false, true}) {
    expect_read_back(flag);
  }
  for (const double number : {0.0, 0.1, -1e-300, 123456789.125}) {
    expect_read_back(number);
  }
  expect_read_back(std::uint32_t{0});
  expect_read_back(std::numeric_limits<std::uint32_t>::max());
  expect_read_back(std::uint64_t{1} << 62);
  expect_read_back(std::string("L\xc3\xa4ufe, 1"));
}

TEST(ValueText, AFlagHasSeveralWords) {
  bool value = false;
  for (const char* yes : {"true", "on", "yes", "1"}) {
    EXPECT_TRUE(parse_value(value, yes).ok() && value) << yes;
  }
  for (const char* no : {"false", "off", "no", "0"}) {
    EXPECT_TRUE(parse_value(value, no).ok() && !value) << no;
  }
}

TEST(ValueText, SaysWhatItExpects) {
  EXPECT_EQ(refusal<bool>("maybe"), "expects true or false, got 'maybe'");
  EXPECT_EQ(refusal<double>("fast"), "expects a number, got 'fast'");
  EXPECT_EQ(refusal<std::uint16_t>("65536"), "expects a whole number from 0 to 65535, got '65536'");
  EXPECT_EQ(refusal<std::uint64_t>("9223372036854775808"),
            "expects a whole number from 0 to 9223372036854775807, got '9223372036854775808'")
      << "TOML has no larger integer";
  EXPECT_EQ(refusal<std::string>("a\nb"), "contains control characters");
  EXPECT_EQ(refusal<std::string>("L\xe4ufe"), "is not valid UTF-8");
}

}  // namespace
}  // namespace mayfly::engine
