#include "base/utf8.hpp"

#include <gtest/gtest.h>

#include <string>

namespace mayfly {
namespace {

TEST(Utf8, TakesEveryLengthOfCharacter) {
  for (const std::string text : {"", "runs/a", "\xc2\x80", "Läufe/ß", "日本", "\xef\xbf\xbf",
                                 "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_utf8(text)) << text;
    EXPECT_TRUE(is_utf8("x" + text + "y")) << text;
  }
}

TEST(Utf8, RefusesWhatIsNone) {
  for (const std::string text :
       {"\x80", "\xff", "\xfe", "L\xe4ufe", "\xc3", "\xe6\x97", "\xf0\x90\x80", "\xc3\x28",
        "\xc0\xaf", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf",  // overlong
        "\xed\xa0\x80", "\xed\xbf\xbf",                              // surrogates
        "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80"}) {               // beyond the last
    EXPECT_FALSE(is_utf8(text)) << text;
    EXPECT_FALSE(is_utf8("x" + text + "y")) << text;
  }
}

}  // namespace
}  // namespace mayfly
