#include "cli/documentation.hpp"

#include <gmock/gmock.h>

#include <regex>
#include <set>

#include "tests/unit/cli/cli_fixture.hpp"

namespace mayfly::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

std::set<std::string> flags_in(const std::string& text) {
  const std::regex flag("--[a-z][a-z-]*");
  return {std::sregex_token_iterator(text.begin(), text.end(), flag), {}};
}

/// The flags that a help text declares, each at the beginning of a line; it only mentions others.
std::set<std::string> declared_in(const std::string& help) {
  const std::regex declaration("\n  (?:-h,)?(--[a-z][a-z-]*)");
  return {std::sregex_token_iterator(help.begin(), help.end(), declaration, 1), {}};
}

/// The flags in a manual page, in which a hyphen is written \-.
std::set<std::string> flags_in_manual(const std::string& page) {
  return flags_in(std::regex_replace(page, std::regex(R"(\\-)"), "-"));
}

/// The command's case in a script, from its first line to the line that ends it.
std::string case_of(const std::string& script, const std::string& command) {
  const std::size_t begin = script.find("\n    " + command + ")");
  EXPECT_NE(begin, std::string::npos) << command;
  return begin == std::string::npos ? "" : script.substr(begin, script.find(";;", begin) - begin);
}

TEST(Documentation, EveryFlagOfHelpAllIsInThePageAndInTheCompletions) {
  const std::vector<DocumentedCommand> commands = documented_commands();
  const std::string bash = bash_completion(commands);
  const std::string zsh = zsh_completion(commands);
  for (const Subcommand& command : subcommands()) {
    const CommandSpec& spec = command.spec;
    const std::set<std::string> flags = declared_in(help_text(spec, true));
    const auto documented =
        std::find_if(commands.begin(), commands.end(),
                     [&spec](const DocumentedCommand& each) { return each.name == spec.name; });
    ASSERT_NE(documented, commands.end()) << spec.name;
    EXPECT_THAT(flags, Contains("--help"));
    EXPECT_THAT(flags_in_manual(command_manual(*documented)), IsSupersetOf(flags)) << spec.name;
    EXPECT_THAT(flags_in(case_of(bash, spec.name)), IsSupersetOf(flags)) << spec.name;
    EXPECT_THAT(flags_in(case_of(zsh, spec.name)), IsSupersetOf(flags)) << spec.name;
  }
}

TEST(Documentation, HasNoFlagThatTheCommandRefuses) {
  const std::vector<DocumentedCommand> commands = documented_commands();
  const auto run = std::find_if(commands.begin(), commands.end(),
                                [](const DocumentedCommand& each) { return each.name == "run"; });
  ASSERT_NE(run, commands.end());
  EXPECT_TRUE(run->choices.empty()) << run->choices.front().first;
  for (const FlagDescription& flag : run->flags) {
    EXPECT_NE(flag.name, "--epochs") << "a program says that itself";
  }
  EXPECT_THAT(command_manual(*run),
              HasSubstr("mayfly run\\fR [flags] \\-\\- PROGRAM [ARGUMENTS]\n"));
}

TEST_F(CliTest, TheProgramsManualAndTheCompletionsHaveEveryCommandOfHelp) {
  ASSERT_EQ(run({"--help"}), 0);
  const std::vector<DocumentedCommand> commands = documented_commands();
  const std::string manual =
      std::regex_replace(program_manual(commands), std::regex(R"(\\-)"), "-");
  for (const DocumentedCommand& command : commands) {
    EXPECT_THAT(out(), HasSubstr("\n  " + command.name + " "));
    EXPECT_THAT(manual, HasSubstr("\n\\fB" + command.name + "\\fR"));
    EXPECT_NE(case_of(bash_completion(commands), command.name), "");
    EXPECT_NE(case_of(zsh_completion(commands), command.name), "");
  }
}

TEST(Documentation, TextThatRoffOrAShellWouldInterpretIsEscaped) {
  const DocumentedCommand command = {
      "demo",
      "it's a demonstration",
      "list JOB | doctor",
      {{"list", ""}, {"doctor", ""}},
      {{"--mask", "TEXT", ".x\\y's [all]: 'z' -1", "Options"}, {"--on", "BOOL [true]", "", ""}}};
  const std::string page = command_manual(command);
  EXPECT_THAT(page, HasSubstr("\n\\&.x\\ey's [all]: 'z' \\-1\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-mask\\fR TEXT\n"));
  EXPECT_THAT(zsh_completion({command}),
              HasSubstr(R"('--mask=[.x\y'\''s \[all\]: '\''z'\'' -1]:TEXT:_files')"));
  EXPECT_THAT(zsh_completion({command}), HasSubstr("'--on=-[]::BOOL:(true false)'"));
  EXPECT_THAT(bash_completion({command}), HasSubstr("demo) choices='list doctor' flags="));
}

}  // namespace
}  // namespace mayfly::cli
