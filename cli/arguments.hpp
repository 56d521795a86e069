#pragma once

// Turns the words after a subcommand into settings, options and positional arguments, and these
// into the configuration of a job. Third-party parsing stays behind this header.

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/parse.hpp"
#include "base/result.hpp"
#include "cli/context.hpp"
#include "engine/config/config.hpp"

namespace mayfly::cli {

/// An option that is not a setting, for example --json.
struct OptionSpec {
  std::string name;         ///< without dashes
  std::string placeholder;  ///< of its value, for the help; empty = a switch
  std::string help;
  std::string letter{};  ///< its short form with one dash, such as "o"; empty = none
};

/// The words that one subcommand accepts.
struct CommandSpec {
  std::string name;
  std::string help;           ///< one line for the list of commands
  std::string positionals{};  ///< for the usage line, for example "ENDPOINT"
  std::vector<OptionSpec> options{};
  /// Settings that are flags here, by name; `all_settings` stands for the whole list.
  std::vector<std::string> settings{};
  bool all_settings = false;
  std::set<std::string> hidden_settings{};  ///< settings that the help does not show
  /// Settings in the short help; empty = the common ones (Setting::is_common).
  std::set<std::string> short_help{};
  engine::JobConfig defaults{};  ///< the defaults of the settings in the help
};

struct ParsedArguments {
  bool help_asked = false;
  bool is_help_all = false;  ///< --help-all: with the settings that few users need
  std::map<std::string, std::string> options;
  std::set<std::string> switches;
  std::vector<std::string> positionals;
  std::vector<std::pair<std::string, std::string>> settings;  ///< (name, text), each at most once

  [[nodiscard]] bool has(const std::string& name) const { return switches.contains(name); }
  /// The option's value, or `otherwise`.
  [[nodiscard]] std::string option(const std::string& name, std::string otherwise = {}) const;
};

/// Parses the words after the subcommand. A flag given twice counts as given last. kInvalidInput
/// with one line that names the nearest flag for an unknown one, or the option (not the setting)
/// whose value is empty.
[[nodiscard]] Result<ParsedArguments> parse_arguments(const CommandSpec& command,
                                                      const std::vector<std::string>& words);

/// The description of the positive numbers of this type, for an error.
template <typename T>
std::string positive_numbers() {
  if constexpr (std::is_floating_point_v<T>) {
    return "a number above 0";
  } else {
    return "a whole number from 1 to " + std::to_string(std::numeric_limits<T>::max());
  }
}

/// Reads an option that must be a positive number; keeps `number` if it is not given.
template <typename T>
Result<void> read_number(const ParsedArguments& arguments, const std::string& name, T& number) {
  const std::string text = arguments.option(name);
  if (text.empty()) {
    return {};
  }
  const auto read = number_in<T>(text);
  if (!read || *read <= 0) {
    return Error{Errc::kInvalidInput,
                 "--" + name + " " + text + ": expects " + positive_numbers<T>()};
  }
  number = *read;
  return {};
}

/// The parser's description of a flag, for the manual pages and completions
/// (cli/documentation.hpp).
struct FlagDescription {
  std::string name;   ///< with its dashes
  std::string value;  ///< as in the help, such as "N [4]": type and default; empty = takes none
  std::string help;
  std::string group;  ///< its heading in the help
};

/// Every flag that the command accepts, in the order of --help-all; without --help-all itself if
/// that prints the same as --help.
[[nodiscard]] std::vector<FlagDescription> describe_flags(const CommandSpec& command);

/// The text of `mayfly COMMAND --help`; with `all`, of --help-all: for commands with all settings
/// the former has the common ones only.
[[nodiscard]] std::string help_text(const CommandSpec& command, bool all = false);

/// Upper bound on a configuration file.
inline constexpr std::size_t kConfigBytesMax = 1 << 20;

/// Merges the settings by precedence: flag, environment, the file of --config, then `config`. The
/// path of a plan in a file is relative to that file, and absolute in the result. kInvalidInput
/// with the source of a wrong value. Whether the settings fit together is not checked here, because
/// a worker still merges them with those of its coordinator.
[[nodiscard]] Result<engine::JobConfig> collect_settings(const ParsedArguments& arguments,
                                                         const Context& context,
                                                         engine::JobConfig config = {});

/// Whether a flag, the environment or the file of --config sets the number of workers.
[[nodiscard]] bool gives_workers(const ParsedArguments& arguments, const Context& context);

/// The treatment of --switch-order, whose phases depend on the number of workers.
enum class SwitchOrder : std::uint8_t {
  kSpelledOut,  ///< replaced by phases and steps
  kKept,        ///< kept, because the number of workers is not known yet
};

/// collect_settings() with validation: settings that contradict each other are kInvalidInput, too.
/// For a job that is continued, `config` has its phases, even if it was begun with the
/// --switch-order that is given again.
[[nodiscard]] Result<engine::JobConfig> resolve_config(
    const ParsedArguments& arguments, const Context& context, engine::JobConfig config = {},
    SwitchOrder order = SwitchOrder::kSpelledOut);

}  // namespace mayfly::cli
