#include "cli/arguments.hpp"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/file.hpp"
#include "base/try_assign.hpp"
#include "engine/config/config.hpp"
#include "engine/config/ps_settings.hpp"

namespace mayfly::cli {
namespace {

using engine::Setting;

constexpr const char* kHelpAll = "help-all";

/// Type and default of a flag's value, such as "N [4]"; empty for a flag that takes none.
std::string value_text(const CLI::Option& option) {
  std::string text = option.get_type_name();
  if (!option.get_default_str().empty()) {
    text += " [" + option.get_default_str() + "]";
  }
  return text;
}

/// The usage line names the positionals, which are not declared to the parser. The parser returns
/// unknown words as "remaining", and judge_extras() checks them, with suggestions.
class UsageFormatter final : public CLI::Formatter {
 public:
  explicit UsageFormatter(std::string positionals) : positionals_(std::move(positionals)) {
    column_width(kNameColumns);
  }
  std::string make_usage(const CLI::App*, std::string name) const override {
    const bool says_flags = positionals_.find("[flags]") != std::string::npos;
    return "Usage: mayfly " + name + (positionals_.empty() ? "" : " " + positionals_) +
           (says_flags ? "\n" : " [flags]\n");
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return " " + value_text(*option);
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(option->get_description());
  }

 private:
  static constexpr std::size_t kNameColumns = 34;
  static constexpr std::size_t kTextColumns = 100 - kNameColumns;

  /// The text in lines of at most kTextColumns, broken between words.
  static std::string wrapped(std::string text) {
    std::size_t begin = 0;
    while (text.size() - begin > kTextColumns) {
      std::size_t blank = text.rfind(' ', begin + kTextColumns);
      if (blank == std::string::npos || blank <= begin) {
        break;
      }
      text[blank] = '\n';
      begin = blank + 1;
    }
    return text;
  }

  std::string positionals_;
};

const char* placeholder(engine::SettingKind kind) {
  switch (kind) {
    case engine::SettingKind::kWhole: return "N";
    case engine::SettingKind::kReal: return "X";
    case engine::SettingKind::kSwitch: return "BOOL";
    case engine::SettingKind::kText: return "TEXT";
  }
  return "";
}

/// Whether the switch has a form --no-NAME, because it is on by default.
bool has_negative(const Setting& setting) {
  return setting.is_switch && setting.get(engine::JobConfig{}) == "true";
}

/// All values of a repeated flag, separated by semicolons.
std::string joined(const CLI::Option* option) {
  std::string all;
  for (const std::string& text : option->results()) {
    all += (all.empty() ? "" : ";") + text;
  }
  return all;
}

/// The parser of one subcommand, with the declared options by their name.
class Parser {
 public:
  explicit Parser(const CommandSpec& command)
      : app_(command.help, command.name),
        has_groups_(command.all_settings),
        hidden_(command.hidden_settings),
        short_help_(command.short_help),
        defaults_(command.defaults) {
    app_.formatter(std::make_shared<UsageFormatter>(command.positionals));
    app_.allow_extras();
    CLI::Option* help_all =
        app_.set_help_all_flag(std::string("--") + kHelpAll, "print all settings, and exit");
    if (has_groups_) {
      app_.get_help_ptr()->description("print the settings that most users need, and exit");
    } else {
      hide(help_all, true);  // it prints the same as --help
    }
    for (const OptionSpec& option : command.options) {
      declare(option);
    }
    for (const Setting& setting : engine::settings()) {
      const bool wanted = std::find(command.settings.begin(), command.settings.end(),
                                    setting.name) != command.settings.end();
      if (command.all_settings || wanted) {
        declare(setting);
      }
    }
  }

  std::string help(bool all) {
    hide_settings(all);
    return app_.help();
  }
  [[nodiscard]] std::vector<FlagDescription> describe();
  Result<ParsedArguments> parse(std::vector<std::string> words);

 private:
  static void hide(CLI::Option* option, bool is_hidden) {
    if (is_hidden) {
      option->group("");
    }
  }

  /// What the help does not show, or not even all of it.
  void hide_settings(bool all) {
    for (const auto* options : {&settings_, &negatives_}) {
      for (const auto& [name, option] : *options) {
        const bool is_short = short_help_.empty() ? engine::find_setting(name)->is_common
                                                  : short_help_.contains(name);
        const bool is_rare = has_groups_ && !all && !is_short;
        hide(option, is_rare || hidden_.contains(name));
      }
    }
  }

  void declare(const OptionSpec& option) {
    if (option.placeholder.empty()) {
      switches_[option.name] = app_.add_flag("--" + option.name, option.help);
    } else {
      options_[option.name] = add(option.name, option.help, option.placeholder, option.letter);
    }
    names_.push_back("--" + option.name);
  }

  void declare(const Setting& setting) {
    const std::string flag = engine::flag_name(setting);
    CLI::Option* option = add(flag, setting.help, placeholder(setting.kind));
    names_.push_back("--" + flag);
    const std::string otherwise = setting.get(defaults_);
    if (setting.is_switch) {
      // Accepts --quiet alone, or --quiet false. The parser must not know the default, because it
      // would take it for the value of a bare --quiet.
      option->expected(0, 1)->type_name("BOOL [" + otherwise + "]");
    } else {
      option->default_str(otherwise);
    }
    if (has_negative(setting)) {
      const std::string help = "the same as --" + flag + " false";
      negatives_[setting.name] = app_.add_flag("--no-" + flag, help);
      names_.push_back("--no-" + flag);
    }
    if (has_groups_) {
      option->group(setting.group);
      if (has_negative(setting)) {
        negatives_.at(setting.name)->group(setting.group);
      }
    }
    settings_[setting.name] = option;
  }

  CLI::Option* add(const std::string& flag, const std::string& help, const std::string& type,
                   const std::string& letter = {}) {
    return app_
        .add_option_function<std::string>((letter.empty() ? "" : "-" + letter + ",") + "--" + flag,
                                          [](const std::string&) {}, help)
        ->type_name(type)
        ->take_last();
  }

  [[nodiscard]] Error refusal(const std::string& reason) const {
    return {Errc::kInvalidInput, reason + " (see mayfly " + app_.get_name() + " --help)"};
  }
  [[nodiscard]] const CLI::Option* flag_of(const std::string& word) const;
  [[nodiscard]] Result<std::vector<std::string>> with_values(
      const std::vector<std::string>& words) const;
  Result<void> judge_extras(ParsedArguments& parsed);
  [[nodiscard]] Result<bool> is_on(const CLI::Option& option) const;
  Result<void> collect(ParsedArguments& parsed);

  CLI::App app_;
  bool has_groups_;
  const std::set<std::string> hidden_;
  const std::set<std::string> short_help_;
  const engine::JobConfig defaults_;
  std::vector<std::string> names_;
  std::map<std::string, CLI::Option*> options_;
  std::map<std::string, CLI::Option*> switches_;
  std::map<std::string, CLI::Option*> settings_;
  std::map<std::string, CLI::Option*> negatives_;
};

std::vector<FlagDescription> Parser::describe() {
  hide_settings(true);
  std::vector<FlagDescription> flags;
  for (const CLI::Option* option : app_.get_options()) {
    if (option->get_group().empty()) {
      continue;
    }
    flags.push_back({"--" + option->get_lnames().front(), value_text(*option),
                     option->get_description(), option->get_group()});
  }
  return flags;
}

/// The declared flag that the word is, perhaps with a value after '='; null = none.
const CLI::Option* Parser::flag_of(const std::string& word) const {
  return word.starts_with('-') ? app_.get_option_no_throw(word.substr(0, word.find('='))) : nullptr;
}

/// The words, in which a flag with an empty value ("--name=") is separated from it. The parser
/// would take any next word for the value of a flag; this function refuses another flag in that
/// place.
Result<std::vector<std::string>> Parser::with_values(const std::vector<std::string>& words) const {
  std::vector<std::string> apart;
  for (auto word = words.begin(); word != words.end(); ++word) {
    const CLI::Option* option = flag_of(*word);
    const bool needs_value = option != nullptr && option->get_items_expected_min() > 0;
    const std::size_t sign = word->find('=');
    if (option != nullptr && sign == word->size() - 1) {
      if (!needs_value) {
        return refusal(*word + " expects true or false");
      }
      apart.insert(apart.end(), {word->substr(0, sign), ""});
      continue;
    }
    apart.push_back(*word);
    if (!needs_value || sign != std::string::npos) {
      continue;
    }
    const auto next = word + 1;
    if (next == words.end() || flag_of(*next) != nullptr) {
      const std::string hint =
          next == words.end() ? "" : "; if it is " + *next + ", write " + *word + "=" + *next;
      return refusal(*word + " needs a value" + hint);
    }
    apart.push_back(*next);
    word = next;
  }
  return apart;
}

/// Checks the words that the parser did not know: positionals are kept, unknown flags are an error.
Result<void> Parser::judge_extras(ParsedArguments& parsed) {
  for (const std::string& word : app_.remaining()) {
    if (word.size() < 2 || word.front() != '-') {
      parsed.positionals.push_back(word);
      continue;
    }
    const std::string flag = word.substr(0, word.find('='));
    return refusal("unknown flag " + flag + engine::suggestion(flag, names_));
  }
  return {};
}

/// Whether a flag that is given alone, or as --NAME=true or --NAME=false, is switched on.
Result<bool> Parser::is_on(const CLI::Option& option) const {
  const std::string& text = option.results().back();
  if (text != "true" && text != "false") {
    return refusal(option.get_name() + "=" + text + " expects true or false");
  }
  return text == "true";
}

Result<void> Parser::collect(ParsedArguments& parsed) {
  for (const auto& [name, option] : options_) {
    if (option->count() > 0) {
      const std::string& text = option->results().back();
      if (text.empty()) {  // e.g. an unset shell variable, which must not mean "no limit"
        return refusal(option->get_name() + " has an empty value; leave it out for its default");
      }
      parsed.options[name] = text;
    }
  }
  for (const auto& [name, option] : switches_) {
    if (option->count() == 0) {
      continue;
    }
    TRY_ASSIGN(const bool on, is_on(*option));
    if (on) {
      parsed.switches.insert(name);
    }
  }
  for (const auto& [name, option] : settings_) {
    if (option->count() > 0) {
      const engine::Setting& setting = *engine::find_setting(name);
      const std::string text = setting.repeats ? joined(option) : option->results().back();
      const bool is_bare = text.empty() && setting.is_switch;
      parsed.settings.emplace_back(name, is_bare ? "true" : text);
    }
  }
  for (const auto& [name, option] : negatives_) {
    if (option->count() == 0) {
      continue;
    }
    if (settings_.at(name)->count() > 0) {
      return Error{Errc::kInvalidInput, "both " + settings_.at(name)->get_name() + " and " +
                                            option->get_name() + " are given"};
    }
    TRY_ASSIGN(const bool off, is_on(*option));
    parsed.settings.emplace_back(name, off ? "false" : "true");
  }
  return {};
}

Result<ParsedArguments> Parser::parse(std::vector<std::string> words) {
  ParsedArguments parsed;
  // After a switch that may have a value, the parser does not stop at "--".
  const auto dashes = std::ranges::find(words, "--");
  const std::vector<std::string> after(dashes == words.end() ? dashes : dashes + 1, words.end());
  words.erase(dashes, words.end());
  TRY_ASSIGN(words, with_values(words));
  std::reverse(words.begin(), words.end());  // the parser takes words from the back
  try {
    app_.parse(words);
  } catch (const CLI::CallForHelp&) {
    parsed.help_asked = true;
    return parsed;
  } catch (const CLI::CallForAllHelp&) {
    parsed.help_asked = parsed.is_help_all = true;
    return parsed;
  } catch (const CLI::ParseError& failure) {
    return refusal(failure.what());
  }
  TRY(judge_extras(parsed));
  parsed.positionals.insert(parsed.positionals.end(), after.begin(), after.end());
  TRY(collect(parsed));
  return parsed;
}

Result<void> apply_file(engine::JobConfig& config, const std::string& path) {
  if (path.empty()) {
    return {};
  }
  TRY_ASSIGN(const std::string text, read_text_file(path, kConfigBytesMax));
  const std::string before = std::exchange(config.plan, "");
  TRY(engine::apply_toml(config, text, path));
  // The path of a plan in a job file is relative to that file.
  config.plan = config.plan.empty()
                    ? before
                    : (std::filesystem::path(path).parent_path() / config.plan).string();
  return {};
}

}  // namespace

std::string ParsedArguments::option(const std::string& name, std::string otherwise) const {
  const auto found = options.find(name);
  return found == options.end() ? std::move(otherwise) : found->second;
}

Result<ParsedArguments> parse_arguments(const CommandSpec& command,
                                        const std::vector<std::string>& words) {
  return Parser(command).parse(words);
}

std::vector<FlagDescription> describe_flags(const CommandSpec& command) {
  return Parser(command).describe();
}

std::string help_text(const CommandSpec& command, bool all) {
  return Parser(command).help(all);
}

Result<engine::JobConfig> collect_settings(const ParsedArguments& arguments, const Context& context,
                                           engine::JobConfig config) {
  TRY(apply_file(config, arguments.option("config")));
  TRY(engine::apply_environment(config, context.environment));
  for (const auto& [name, text] : arguments.settings) {
    const std::string source = "flag --" + engine::flag_name(*engine::find_setting(name));
    TRY(engine::apply_setting(config, name, text, source));
  }
  if (!config.plan.empty()) {  // absolute, because these settings may be written to a file in
                               // another folder
    std::error_code failure;
    const std::filesystem::path full = std::filesystem::absolute(config.plan, failure);
    config.plan = failure ? config.plan : full.string();
  }
  return config;
}

bool gives_workers(const ParsedArguments& arguments, const Context& context) {
  engine::JobConfig none;
  none.workers = 0;
  const Result<engine::JobConfig> given = collect_settings(arguments, context, none);
  return given.ok() && given.value().workers != none.workers;
}

Result<engine::JobConfig> resolve_config(const ParsedArguments& arguments, const Context& context,
                                         engine::JobConfig start, SwitchOrder order) {
  TRY_ASSIGN(const engine::JobConfig own, collect_settings(arguments, context));
  if (!own.switch_order.empty()) {
    start.sync.clear();
    start.phases.clear();
    start.steps = 0;
  }
  TRY_ASSIGN(engine::JobConfig config, collect_settings(arguments, context, std::move(start)));
  engine::JobConfig spelled_out = config;
  TRY(engine::spell_out_switch_order(spelled_out));
  TRY(engine::validate(spelled_out));
  return order == SwitchOrder::kKept ? std::move(config) : std::move(spelled_out);
}

}  // namespace mayfly::cli
