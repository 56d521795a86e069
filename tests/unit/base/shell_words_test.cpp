#include "base/shell_words.hpp"

#include <gtest/gtest.h>

namespace mayfly {
namespace {

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

}  // namespace
}  // namespace mayfly
