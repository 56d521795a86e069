#include "engine/config/config_toml.hpp"

#include <gtest/gtest.h>

#include "engine/config/config.hpp"

namespace mayfly::engine {
namespace {

/// a.a.a...
std::string key_of(std::size_t parts) {
  std::string key = "a";
  for (std::size_t i = 1; i < parts; ++i) {
    key += ".a";
  }
  return key;
}

std::string reading(const std::string& text) {
  JobConfig config;
  const Result<void> read = apply_toml(config, text, "k.toml");
  return read.ok() ? "fine" : read.error().detail;
}

const std::string kTooLong = ": a key of more than 16 parts; no setting has such a name";

TEST(TomlKeys, OneOfTenThousandsOfPartsIsRefusedWithItsLine) {
  const std::string key = key_of(50'000);
  EXPECT_EQ(reading(key + " = 1\n"), "k.toml line 1" + kTooLong);
  EXPECT_EQ(reading("lr = 0.5\n[" + key + "]\n"), "k.toml line 2" + kTooLong);
  EXPECT_EQ(reading("\n\n[[" + key + "]]\n"), "k.toml line 3" + kTooLong);
  EXPECT_EQ(reading("a = [{ x = 1,\n" + key + " = 1 }]\n"), "k.toml line 2" + kTooLong);
  EXPECT_EQ(reading("a . \"b\" . " + key + " = 1"), "k.toml line 1" + kTooLong);
}

TEST(TomlKeys, NoStringHidesOne) {
  const std::string key = key_of(50'000);
  for (const std::string string : {R"("")", R"("x # \" y")", R"('\')", R"("""x""")", R"("""x"""")",
                                   R"("""x""""")", "\"\"\"x\n\\\"\"\"\n\"\"\"", "'''x\n''''"}) {
    const std::string text = "x = { s = " + string + ", " + key + " = 1 }\n";
    EXPECT_FALSE(check_key_parts(text, "k.toml").ok()) << string;
  }
  EXPECT_FALSE(check_key_parts("s = 'x\n" + key + " = 1", "k.toml").ok());
  EXPECT_FALSE(check_key_parts("# '''\n" + key + " = 1", "k.toml").ok());
}

TEST(TomlKeys, DotsThatPartNoKeyAreNotCounted) {
  std::string numbers = "0.5";
  for (int i = 0; i < 1000; ++i) {
    numbers += ", 0.5";
  }
  const std::string dots(1000, '.');
  for (const std::string& text :
       {"x = [" + numbers + "]", "data = \"" + dots + "\"", "data = '" + dots + "'",
        "data = \"\"\"\n" + dots + "\n\\\"\"\"" + dots + "\"\"\"", "# " + dots,
        "\"" + dots + "\" = 1", key_of(kKeyPartsMax) + " = 1", "[" + key_of(kKeyPartsMax) + "]"}) {
    EXPECT_TRUE(check_key_parts(text, "k.toml").ok()) << text.substr(0, 60);
  }
  EXPECT_EQ(reading("data = \"" + dots + "\" # " + dots + "\nlr = 0.5\n"), "fine");
  EXPECT_FALSE(check_key_parts(key_of(kKeyPartsMax + 1) + " = 1", "k.toml").ok());
}

// The deepest text that still reaches the parser: nested tables whose keys are allowed.
TEST(TomlKeys, WhatIsLeftToTheParserIsRefusedByIt) {
  for (const int levels : {200, 100'000}) {
    std::string text = key_of(kKeyPartsMax) + " = ";
    for (int i = 0; i < levels; ++i) {
      text += "{ " + key_of(kKeyPartsMax) + " = ";
    }
    text += "1";
    for (int i = 0; i < levels; ++i) {
      text += " }";
    }
    EXPECT_NE(reading(text), "fine");
  }
}

}  // namespace
}  // namespace mayfly::engine
