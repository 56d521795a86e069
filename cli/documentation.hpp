#pragma once

// Manual pages and shell completions, made from the description of the commands that also parses
// their flags and prints their help, so that the three cannot differ. Pure.

#include <string>
#include <utility>
#include <vector>

#include "cli/arguments.hpp"

namespace mayfly::cli {

/// One command as a page or a completion presents it.
struct DocumentedCommand {
  std::string name;
  std::string help;         ///< one line
  std::string positionals;  ///< as in the usage line; may be empty
  /// Words that the first positional argument may be, each with its help (perhaps empty).
  std::vector<std::pair<std::string, std::string>> choices;
  /// Empty if the flags are known only to another program: `bench NAME` and `simulate`.
  std::vector<FlagDescription> flags;
};

/// Every command of `mayfly --help`, in its order.
[[nodiscard]] std::vector<DocumentedCommand> documented_commands();

/// The paragraphs below the list of commands, in lines of at most 90 columns: settings, exit codes.
[[nodiscard]] const std::string& about_settings();
[[nodiscard]] const std::string& about_exit_codes();

/// mayfly.1 and mayfly-COMMAND.1, in the man macros of roff.
[[nodiscard]] std::string program_manual(const std::vector<DocumentedCommand>& commands);
[[nodiscard]] std::string command_manual(const DocumentedCommand& command);

/// A script for bash-completion's folder `completions`, which bash reads when it first completes
/// `mayfly`; and a function for zsh's `site-functions`.
[[nodiscard]] std::string bash_completion(const std::vector<DocumentedCommand>& commands);
[[nodiscard]] std::string zsh_completion(const std::vector<DocumentedCommand>& commands);

}  // namespace mayfly::cli
