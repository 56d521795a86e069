#include "base/bytes.hpp"

#include <gtest/gtest.h>

namespace mayfly {
namespace {

TEST(WireReader, ReturnsWhatTheWriterPut) {
  WireWriter writer;
  writer.put<std::uint16_t>(0x1234);
  writer.put_string("ring");
  writer.put<double>(0.5);
  const Bytes bytes = writer.take();

  WireReader reader(bytes);
  EXPECT_EQ(reader.get<std::uint16_t>(), 0x1234);
  EXPECT_EQ(reader.get_string(16), "ring");
  EXPECT_EQ(reader.get<double>(), 0.5);
  EXPECT_TRUE(reader.complete());
}

TEST(WireReader, StaysFailedAfterTheFirstShortField) {
  WireWriter writer;
  writer.put<std::uint16_t>(7);
  const Bytes bytes = writer.take();

  WireReader reader(bytes);
  EXPECT_EQ(reader.get<std::uint32_t>(), 0u);
  EXPECT_TRUE(reader.failed());
  EXPECT_EQ(reader.get<std::uint16_t>(), 0) << "a failed reader hands out zeros only";
}

TEST(WireReader, RefusesAFieldLongerThanItsBound) {
  WireWriter writer;
  writer.put_string("twelve bytes");
  const Bytes bytes = writer.take();
  WireReader reader(bytes);
  EXPECT_EQ(reader.get_string(11), "");
  EXPECT_TRUE(reader.failed());
}

TEST(WireReader, RefusesACountThatTheInputCannotHold) {
  WireWriter writer;
  writer.put<std::uint32_t>(1'000'000);
  const Bytes bytes = writer.take();
  WireReader reader(bytes);
  EXPECT_EQ(reader.get_count(2'000'000, 8), 0u);
  EXPECT_TRUE(reader.failed());
}

TEST(WireReader, ReportsTrailingBytesAsIncomplete) {
  WireWriter writer;
  writer.put<std::uint8_t>(1);
  writer.put<std::uint8_t>(2);
  const Bytes bytes = writer.take();
  WireReader reader(bytes);
  EXPECT_EQ(reader.get<std::uint8_t>(), 1);
  EXPECT_FALSE(reader.complete());
}

TEST(Hex, ReadsWhatItWrites) {
  const Bytes bytes{std::byte{0}, std::byte{0x7f}, std::byte{0xff}};
  EXPECT_EQ(from_hex(to_hex(bytes)), bytes);
  EXPECT_EQ(from_hex("007FfF"), bytes);
  EXPECT_EQ(from_hex(""), Bytes());
  for (const char* text : {"0", "0g", "+1", " 1", "0x", "00 ", "-1"}) {
    EXPECT_EQ(from_hex(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace mayfly
