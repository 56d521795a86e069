#include "engine/config/derived_settings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mayfly::engine {
namespace {

using ::testing::HasSubstr;

TEST(TraceWindow, IsTwoRisingNumbers) {
  const TraceWindow window = parse_trace_window("3:10").value();
  EXPECT_EQ(window.first, 3U);
  EXPECT_EQ(window.last, 10U);
  for (const char* wrong : {"", "3", "3:", ":3", "3:3", "4:3", "-1:3", "1:2:3", "a:b"}) {
    const Result<TraceWindow> result = parse_trace_window(wrong);
    ASSERT_FALSE(result.ok()) << wrong;
    EXPECT_EQ(result.error().code, Errc::kInvalidInput);
    EXPECT_THAT(result.error().detail, HasSubstr("0:50"));
  }
}

TEST(BucketSize, IsKibOfFourByteElements) {
  EXPECT_EQ(parse_bucket_kib("512").value().elements, std::size_t{128} << 10);
  EXPECT_FALSE(parse_bucket_kib("512").value().tuned);
  EXPECT_TRUE(parse_bucket_kib("auto").value().tuned);
  EXPECT_GT(parse_bucket_kib("auto").value().elements, 0U);
  for (const char* wrong : {"", "0", "3", "1048577", "-4", "512K", "automatic"}) {
    EXPECT_FALSE(parse_bucket_kib(wrong).ok()) << wrong;
  }
}

TEST(Wire, GoesWithItsReductionOnly) {
  EXPECT_EQ(parse_wire("auto", "exact").value(), Wire::kInt32);
  EXPECT_EQ(parse_wire("int16", "exact").value(), Wire::kInt16);
  EXPECT_EQ(parse_wire("auto", "fp32").value(), Wire::kFp32);
  EXPECT_EQ(parse_wire("bf16", "fp32").value(), Wire::kBf16);
  EXPECT_EQ(parse_wire("fp16", "fp32").value(), Wire::kFp16);
  EXPECT_THAT(parse_wire("bf16", "exact").error().detail, HasSubstr("int16"));
  EXPECT_THAT(parse_wire("int16", "fp32").error().detail, HasSubstr("bf16"));
  EXPECT_THAT(parse_wire("int8", "exact").error().detail, HasSubstr("int16"));
}

TEST(Wire, NamesReadBack) {
  for (const Wire wire : {Wire::kInt32, Wire::kInt16, Wire::kFp32, Wire::kBf16, Wire::kFp16}) {
    EXPECT_EQ(parse_wire(name_of(wire), is_exact(wire) ? "exact" : "fp32").value(), wire);
  }
}

}  // namespace
}  // namespace mayfly::engine
