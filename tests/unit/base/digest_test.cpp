#include "base/digest.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace mayfly {
namespace {

ByteSpan bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// The value is that of `xxhsum -H2` (XXH3, 128 bits) for empty input, so digests in records can be
// checked by hand.
TEST(Digest, OfNothingIsThePublishedValueOfXxh3) {
  EXPECT_EQ(to_string(digest_of({})), "99aa06d3014798d86001c324468d497f");
}

TEST(Digest, DoesNotDependOnHowTheBytesAreCut) {
  const std::string_view text = "the same bytes in one piece or in three";
  Digester digester;
  digester.add(bytes_of(text.substr(0, 1)));
  digester.add(bytes_of(text.substr(1, 20)));
  digester.add(bytes_of(text.substr(21)));
  EXPECT_EQ(digester.finish(), digest_of(bytes_of(text)));
}

TEST(Digest, DependsOnOrder) {
  Digester forward;
  forward.add_value<std::uint32_t>(1);
  forward.add_value<std::uint32_t>(2);
  Digester backward;
  backward.add_value<std::uint32_t>(2);
  backward.add_value<std::uint32_t>(1);
  EXPECT_NE(forward.finish(), backward.finish());
}

TEST(Digest, PrintsLeadingZerosAndReadsWhatItPrints) {
  const std::string text = "000000000000000100000000000000ab";
  EXPECT_EQ(to_string(Digest{1, 0xab}), text);
  EXPECT_EQ(digest_in(text), (Digest{1, 0xab}));
  EXPECT_FALSE(digest_in(""));
  EXPECT_FALSE(digest_in(text.substr(1)));
  EXPECT_FALSE(digest_in(text + "0"));
  EXPECT_FALSE(digest_in("g" + text.substr(1)));
  EXPECT_FALSE(digest_in("-" + text.substr(1)));
  EXPECT_FALSE(digest_in(text.substr(0, 31) + "B"));
}

}  // namespace
}  // namespace mayfly
