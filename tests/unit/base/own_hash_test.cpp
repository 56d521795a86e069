#include "base/own_hash.hpp"

#include <gtest/gtest.h>

namespace mayfly {
namespace {

TEST(OwnHash, FitsWhatWasWrittenAndNothingElse) {
  const std::string text = with_own_hash(R"({"a": 1})", "hash");
  EXPECT_TRUE(text.starts_with(R"({"a": 1,"hash":")")) << text;
  EXPECT_TRUE(fits_own_hash(text, "hash"));
  EXPECT_FALSE(fits_own_hash(text, "other"));
  EXPECT_FALSE(fits_own_hash("", "hash"));
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    EXPECT_FALSE(fits_own_hash(changed, "hash")) << at;
    EXPECT_FALSE(fits_own_hash(text.substr(0, at), "hash")) << at;
  }
}

}  // namespace
}  // namespace mayfly
