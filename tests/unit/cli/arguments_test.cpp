#include "cli/arguments.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mayfly::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

const CommandSpec kCommand = {.name = "demo",
                              .help = "a demonstration",
                              .positionals = "THING",
                              .options = {{"json", "", "print JSON"}, {"config", "FILE", "a file"}},
                              .settings = {"lr", "augment", "quiet"}};

ParsedArguments parsed(const std::vector<std::string>& words) {
  Result<ParsedArguments> result = parse_arguments(kCommand, words);
  EXPECT_TRUE(result.ok()) << result.error().detail;
  return result.ok() ? std::move(result).value() : ParsedArguments{};
}

std::string error_of(const std::vector<std::string>& words) {
  const Result<ParsedArguments> result = parse_arguments(kCommand, words);
  return result.ok() ? "(no error)" : result.error().detail;
}

TEST(Arguments, FlagsTakeTheirValueWithASpaceOrAnEqualsSign) {
  EXPECT_THAT(parsed({"--lr", "0.5"}).settings, ElementsAre(Pair("lr", "0.5")));
  EXPECT_THAT(parsed({"--lr=0.5"}).settings, ElementsAre(Pair("lr", "0.5")));
  EXPECT_EQ(parsed({"--config", "a.toml"}).option("config"), "a.toml");
  EXPECT_EQ(parsed({}).option("config", "none"), "none");
}

TEST(Arguments, TheLastOfARepeatedFlagCounts) {
  EXPECT_THAT(parsed({"--lr", "1", "--lr", "2"}).settings, ElementsAre(Pair("lr", "2")));
}

TEST(Arguments, SwitchesCanBeBareOrHaveAValueOrANegative) {
  EXPECT_THAT(parsed({"--quiet"}).settings, ElementsAre(Pair("quiet", "true")));
  EXPECT_THAT(parsed({"--quiet", "--lr", "1"}).settings,
              ElementsAre(Pair("lr", "1"), Pair("quiet", "true")));
  EXPECT_THAT(parsed({"--augment", "false"}).settings, ElementsAre(Pair("augment", "false")));
  EXPECT_THAT(parsed({"--augment=false"}).settings, ElementsAre(Pair("augment", "false")));
  EXPECT_THAT(parsed({"--no-augment"}).settings, ElementsAre(Pair("augment", "false")));
  EXPECT_TRUE(parsed({"--json"}).has("json"));
  EXPECT_FALSE(parsed({}).has("json"));
  EXPECT_THAT(error_of({"--augment", "--no-augment"}),
              HasSubstr("both --augment and --no-augment"));
}

TEST(Arguments, PositionalsMayStandAnywhere) {
  EXPECT_THAT(parsed({"thing", "--lr", "1"}).positionals, ElementsAre("thing"));
  EXPECT_THAT(parsed({"--lr", "1", "thing", "other"}).positionals, ElementsAre("thing", "other"));
}

TEST(Arguments, UnknownFlagsNameTheNearest) {
  EXPECT_THAT(error_of({"--augmnet"}),
              HasSubstr("unknown flag --augmnet; did you mean '--augment'?"));
  EXPECT_THAT(error_of({"--jsn=1"}), HasSubstr("unknown flag --jsn; did you mean '--json'?"));
  EXPECT_THAT(error_of({"--workers", "4"}), HasSubstr("unknown flag --workers"));
  EXPECT_THAT(error_of({"-x"}), HasSubstr("unknown flag -x"));
}

TEST(Arguments, AMissingValueIsAnErrorOfOneLine) {
  const std::string error = error_of({"--lr"});
  EXPECT_THAT(error, HasSubstr("--lr"));
  EXPECT_EQ(error.find('\n'), std::string::npos);
}

TEST(Arguments, AFlagIsNotTheValueOfTheFlagBeforeIt) {
  EXPECT_THAT(error_of({"--config", "--quiet"}),
              HasSubstr("--config needs a value; if it is --quiet, write --config=--quiet"));
  EXPECT_THAT(error_of({"--lr", "--config=a"}), HasSubstr("--lr needs a value"));
  EXPECT_THAT(error_of({"--config", "--help"}), HasSubstr("--config needs a value"));
  EXPECT_EQ(parsed({"--config=--quiet"}).option("config"), "--quiet");
  EXPECT_EQ(parsed({"--config=a="}).option("config"), "a=");
  EXPECT_THAT(parsed({"--lr", "-1", "--quiet"}).settings,
              ElementsAre(Pair("lr", "-1"), Pair("quiet", "true")));
}

TEST(Arguments, AnEmptyValueIsNoMissingOption) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--config", ""}, {"--config="}, {"--config=", "thing"}}) {
    EXPECT_THAT(error_of(words), HasSubstr("--config has an empty value"));
  }
  EXPECT_THAT(parsed({"--lr=", "thing"}).settings, ElementsAre(Pair("lr", "")));
  EXPECT_THAT(parsed({"--lr=", "thing"}).positionals, ElementsAre("thing"));
  EXPECT_THAT(error_of({"--quiet="}), HasSubstr("--quiet= expects true or false"));
}

TEST(Arguments, EverySwitchCanBeSwitchedOff) {
  EXPECT_TRUE(parsed({"--json=true"}).has("json"));
  EXPECT_FALSE(parsed({"--json=false"}).has("json"));
  EXPECT_FALSE(parsed({"--json", "--json=false"}).has("json"));
  EXPECT_THAT(error_of({"--json=maybe"}), HasSubstr("--json=maybe expects true or false"));
  EXPECT_THAT(parsed({"--no-augment=false"}).settings, ElementsAre(Pair("augment", "true")));
}

TEST(Arguments, NumbersOutOfRangeAreToldTheRange) {
  const CommandSpec command = {
      .name = "demo", .help = "", .options = {{"port", "P", ""}, {"budget", "X", ""}}};
  const auto refusal = [&command](const std::string& flag, const std::string& text, auto number) {
    const auto arguments = parse_arguments(command, {"--" + flag, text});
    const Result<void> read = read_number(arguments.value(), flag, number);
    return read.ok() ? std::to_string(number) : read.error().detail;
  };
  EXPECT_EQ(refusal("port", "80", std::uint16_t{}), "80");
  for (const std::string text : {"70000", "0", "1e3", "-1", "many"}) {
    EXPECT_EQ(refusal("port", text, std::uint16_t{}),
              "--port " + text + ": expects a whole number from 1 to 65535");
  }
  EXPECT_EQ(refusal("budget", "0", 0.0), "--budget 0: expects a number above 0");
}

TEST(Arguments, HelpShowsUsageFlagsAndDefaults) {
  EXPECT_TRUE(parsed({"--help"}).help_asked);
  const std::string help = help_text(kCommand);
  for (const char* part : {"Usage: mayfly demo THING [flags]", "--json", "--config FILE",
                           "--lr X [0.1]", "--augment", "--no-augment"}) {
    EXPECT_THAT(help, HasSubstr(part));
  }
}

}  // namespace
}  // namespace mayfly::cli
