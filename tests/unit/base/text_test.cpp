#include "base/text.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
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
        "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80"}) {               // beyond the last code point
    EXPECT_FALSE(is_utf8(text)) << text;
    EXPECT_FALSE(is_utf8("x" + text + "y")) << text;
  }
}

TEST(ShortestText, ReadsBackToTheSameNumber) {
  EXPECT_EQ(shortest_text(0.1), "0.1");
  EXPECT_EQ(shortest_text(-3), "-3");
  EXPECT_EQ(shortest_text(1e300), "1e+300");
  EXPECT_EQ(shortest_text(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(std::stod(shortest_text(0.1 + 0.2)), 0.1 + 0.2);
  EXPECT_EQ(std::stod(shortest_text(-1.2345678901234567e-300)), -1.2345678901234567e-300);
  EXPECT_EQ(shortest_text(-std::numeric_limits<double>::denorm_min()), "-5e-324");
}

TEST(Printable, LeavesTextAndTakesWhatATerminalWouldObey) {
  EXPECT_EQ(printable("a\tb\n\xc3\xa9"), "a\tb\n\xc3\xa9");
  EXPECT_EQ(printable("\x1b[2J\r\x7f"), "?[2J??");
  EXPECT_EQ(printable("\xa9 cut off"), "? cut off");
  EXPECT_EQ(printable_line("a\tb\n\x1b\xc3\xa9"), "a?b??\xc3\xa9");
}

TEST(LastLine, IsTheLastThatIsNotBlank) {
  EXPECT_EQ(last_line_of("one\n  two \r\n \n"), "two");
  EXPECT_EQ(last_line_of("one"), "one");
  EXPECT_EQ(last_line_of(" \n\n"), "");
  EXPECT_EQ(last_line_of(""), "");
}

TEST(ShellWords, QuotesAnyText) {
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("it's $HOME"), "'it'\\''s $HOME'");
}

TEST(ShellWords, QuoteOnlyWhatNeedsIt) {
  EXPECT_EQ(shell_line({"mayfly", "compare", "--seeds", "3"}), "mayfly compare --seeds 3");
  EXPECT_EQ(shell_line({"--phases", "bsp:25%,asp+elastic", "--data", "/a/b-c_d.tar"}),
            "--phases bsp:25%,asp+elastic --data /a/b-c_d.tar");
  EXPECT_EQ(shell_line({"--variants", "bsp asp", "--init-from", ""}),
            "--variants 'bsp asp' --init-from ''");
  EXPECT_EQ(shell_line({"asp{lr=0.5x}", "a;b", "~", "*"}), "'asp{lr=0.5x}' 'a;b' '~' '*'");
}

TEST(EditDistance, CountsTheChangesBetweenTwoNames) {
  EXPECT_EQ(edit_distance("resnet20", "resnet20"), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("resnt20", "resnet20"), 1U);
  EXPECT_EQ(edit_distance("resnet21", "resnet20"), 1U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

TEST(EditDistance, TwoSwappedNeighboursAreOneMistake) {
  EXPECT_EQ(edit_distance("wokrers", "workers"), 1U);
}

std::string reason(const std::string& text) {
  return reason_of(std::runtime_error(text));
}

TEST(ReasonOf, LeavesOutThePlaceInALibrarysSource) {
  EXPECT_EQ(reason("syntax error [boost.json:2 at ./boost/json/basic_parser_impl.hpp:635 in "
                   "function 'parse_value']"),
            "syntax error");
  EXPECT_EQ(reason("bind: Address already in use [system:98 at /usr/include/boost/asio/"
                   "detail/socket_ops.ipp:12:3 in function 'bind']"),
            "bind: Address already in use");
  EXPECT_EQ(reason("incomplete JSON [boost.json:1]"), "incomplete JSON");
  EXPECT_EQ(reason("[/build/gloo-1/gloo/transport/tcp/pair.cc:589] Read error [::1]:4711: reset"),
            "Read error [::1]:4711: reset");
}

TEST(ReasonOf, LeavesOtherBracketsAlone) {
  for (const char* text : {"", "[", "]", " []", "no such host", "cannot open [a:1] b",
                           "filesystem error: status: no [/a/b:1]", "Read error [127.0.0.1]:80",
                           "[1/2] of it", "in [x:y at z]"}) {
    EXPECT_EQ(reason(text), text);
  }
}

}  // namespace
}  // namespace mayfly
