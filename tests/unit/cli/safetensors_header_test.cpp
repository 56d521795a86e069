#include "cli/checkpoint_commands.hpp"

#include <gtest/gtest.h>

namespace mayfly::cli {
namespace {

Bytes file_with(const std::string& header, std::size_t claimed) {
  WireWriter writer;
  writer.put(static_cast<std::uint64_t>(claimed));
  for (const char c : header) {
    writer.put(c);
  }
  return writer.take();
}

TEST(SafetensorsHeader, ListsTensorsInTheOrderOfTheirData) {
  const std::string header =
      R"({"__metadata__":{"a":"b"},"second":{"dtype":"F32","shape":[],"data_offsets":[24,28]},)"
      R"("first":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";
  const auto entries = read_safetensors_header(file_with(header, header.size()));
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries.value().size(), 2u);
  EXPECT_EQ(entries.value()[0].name, "first");
  EXPECT_EQ(entries.value()[0].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(entries.value()[0].bytes, 24u);
  EXPECT_EQ(entries.value()[1].name, "second");
  EXPECT_EQ(entries.value()[1].bytes, 4u);
}

TEST(SafetensorsHeader, RefusesWhatIsNotOne) {
  EXPECT_FALSE(read_safetensors_header({}).ok());
  EXPECT_FALSE(read_safetensors_header(file_with("{}", 3)).ok());
  EXPECT_FALSE(read_safetensors_header(file_with("{}", ~std::size_t{0})).ok());
  for (const std::string header : {"", "[]", "{\"a\":1}", "{\"a\":{\"dtype\":\"F32\"}}",
                                   R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})",
                                   R"({"a":{"dtype":"F32","shape":["x"],"data_offsets":[0,4]}})"}) {
    EXPECT_FALSE(read_safetensors_header(file_with(header, header.size())).ok()) << header;
  }
}

}  // namespace
}  // namespace mayfly::cli
