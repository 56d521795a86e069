// Manual pages and shell completions, and `mayfly documentation`, which writes them in the layout
// of /usr/share.

#include "cli/documentation.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <sstream>

#include "base/file.hpp"
#include "base/text.hpp"
#include "cli/cli.hpp"
#include "engine/job/job.hpp"

namespace mayfly::cli {
namespace {

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

/// The literal words of a usage line such as "list JOB | release JOB | doctor": the words in lower
/// case, perhaps in brackets; placeholders are in capitals.
std::vector<std::pair<std::string, std::string>> literal_words(const std::string& positionals) {
  std::vector<std::pair<std::string, std::string>> words;
  const std::string own = replaced(positionals, "[flags]", "");
  std::istringstream stream(replaced(replaced(own, "[", ""), "]", ""));
  for (std::string word; stream >> word;) {
    if (std::all_of(word.begin(), word.end(), [](char c) { return c >= 'a' && c <= 'z'; })) {
      words.emplace_back(word, "");
    }
  }
  return words;
}

/// Text for roff. A hyphen would be typeset as a dash that a terminal cannot find or paste, and a
/// line that begins with a full stop or an apostrophe would be a request.
std::string roff(const std::string& text) {
  std::string escaped = replaced(replaced(text, "\\", "\\e"), "-", "\\-");
  escaped = replaced(replaced(escaped, "\n.", "\n\\&."), "\n'", "\n\\&'");
  const bool is_request = !escaped.empty() && (escaped[0] == '.' || escaped[0] == '\'');
  return is_request ? "\\&" + escaped : escaped;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return text;
}

std::string manual_head(const std::string& page, const std::string& help,
                        const std::string& usage) {
  return fmt::format(
      ".TH {} 1 \"\" \"Mayfly {}\" \"User Commands\"\n"
      ".SH NAME\n{} \\- {}\n"
      ".SH SYNOPSIS\n\\fB{}\\fR{}\n",
      upper(roff(page)), engine::kVersion, roff(page), roff(help),
      roff(replaced(page, "mayfly-", "mayfly ")), roff(usage.empty() ? "" : " " + usage));
}

/// One entry of a list: a term in bold, the rest of its line, and the text below.
std::string manual_entry(const std::string& term, const std::string& rest,
                         const std::string& text) {
  return fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff(term), roff(rest.empty() ? "" : " " + rest),
                     text.empty() ? "\\&" : roff(text));
}

std::string manual_flags(const std::vector<FlagDescription>& flags) {
  std::string text = ".SH OPTIONS\n";
  std::string group;
  for (const FlagDescription& flag : flags) {
    if (flag.group != group) {
      group = flag.group;
      text += ".SS " + roff(group) + "\n";
    }
    text += manual_entry(flag.name, flag.value, flag.help);
  }
  return text;
}

std::string joined_names(const DocumentedCommand& command) {
  std::string names;
  for (const FlagDescription& flag : command.flags) {
    names += (names.empty() ? "" : " ") + flag.name;
  }
  return names;
}

std::string joined_choices(const DocumentedCommand& command) {
  std::string words;
  for (const auto& [word, help] : command.choices) {
    words += (words.empty() ? "" : " ") + word;
  }
  return words;
}

/// The description of a flag for zsh's _arguments: whether it takes a value, and whether that may
/// be a file.
std::string zsh_flag(const FlagDescription& flag) {
  const std::string help = replaced(replaced(flag.help, "[", "\\["), "]", "\\]");
  const std::string type = flag.value.substr(0, flag.value.find(' '));
  const bool is_number = type == "N" || type == "X" || type == "SECONDS" || type == "S";
  const std::string value = type.empty()     ? ""
                            : type == "BOOL" ? "::" + type + ":(true false)"
                            : is_number      ? ":" + type + ": "
                                             : ":" + type + ":_files";
  const std::string sign = type.empty() ? "" : type == "BOOL" ? "=-" : "=";
  return shell_quoted(flag.name + sign + "[" + help + "]" + value);
}

Result<void> write(const std::string& folder, const std::string& file, const std::string& text) {
  TRY(make_directories(folder));
  return write_file_atomic(folder + "/" + file, text);
}

Result<void> write_all(const std::string& folder) {
  const std::vector<DocumentedCommand> commands = documented_commands();
  const std::string manuals = folder + "/man/man1";
  TRY(write(manuals, "mayfly.1", program_manual(commands)));
  for (const DocumentedCommand& command : commands) {
    TRY(write(manuals, "mayfly-" + command.name + ".1", command_manual(command)));
  }
  TRY(write(folder + "/bash-completion/completions", "mayfly", bash_completion(commands)));
  return write(folder + "/zsh/site-functions", "_mayfly", zsh_completion(commands));
}

}  // namespace

std::vector<DocumentedCommand> documented_commands() {
  std::vector<DocumentedCommand> list;
  for (const Subcommand& command : subcommands()) {
    const CommandSpec& spec = command.spec;
    list.push_back({spec.name, spec.help, spec.positionals, literal_words(spec.positionals),
                    describe_flags(spec)});
  }
  list.push_back({"simulate",
                  "run membership, failover or parameter servers in simulated time, with faults",
                  "",
                  {},
                  {}});
  list.push_back({"bench", "run a benchmark (mayfly bench --help lists them)", "NAME", {}, {}});
  return list;
}

const std::string& about_settings() {
  static const std::string text =
      "mayfly COMMAND --help lists the flags that most users need, --help-all all of them.\n"
      "Every setting is also an environment variable (--global-batch: MAYFLY_GLOBAL_BATCH)\n"
      "and a TOML key (global_batch, see --config); precedence: flag, environment, file,\n"
      "default. A switch can be written --quiet, --quiet=true or --quiet=false; one that is\n"
      "on by default also --no-augment.\n";
  return text;
}

const std::string& about_exit_codes() {
  static const std::string text =
      "0 done, 1 failed, 2 bad usage or configuration, 3 stopped by the user with a\n"
      "checkpoint written, 4 too few workers for too long.\n";
  return text;
}

std::string program_manual(const std::vector<DocumentedCommand>& commands) {
  std::string text = manual_head("mayfly", "elastic data-parallel training", "COMMAND [flags]") +
                     ".SH DESCRIPTION\n"
                     "Mayfly trains ResNets, and models of your own, data\\-parallel on workers "
                     "that may disappear\nat any moment.\n"
                     "Each command has a page of its own, mayfly\\-COMMAND(1).\n"
                     ".SH COMMANDS\n";
  for (const DocumentedCommand& command : commands) {
    text += manual_entry(command.name, command.positionals, command.help);
  }
  return text + ".SH SETTINGS\n" + roff(about_settings()) + ".SH EXIT STATUS\n" +
         roff(about_exit_codes());
}

std::string command_manual(const DocumentedCommand& command) {
  const std::string usage = command.positionals + (command.positionals.empty() ? "" : " ");
  const bool says_flags = usage.find("[flags]") != std::string::npos;
  std::string text = manual_head("mayfly-" + command.name, command.help,
                                 says_flags ? command.positionals : usage + "[flags]");
  const bool has_list = std::any_of(command.choices.begin(), command.choices.end(),
                                    [](const auto& choice) { return !choice.second.empty(); });
  if (has_list) {
    text += ".SH ARGUMENTS\n" + roff(command.positionals) + " is one of:\n";
    for (const auto& [word, help] : command.choices) {
      text += manual_entry(word, "", help);
    }
  }
  text += command.flags.empty()
              ? ".SH OPTIONS\nThe flags are listed by\n\\fB" +
                    roff("mayfly " + command.name + " " + usage + "--help") + "\\fR.\n"
              : manual_flags(command.flags);
  return text +
         ".SH SEE ALSO\n\\fBmayfly\\fR(1): settings in the environment and in files, exit "
         "codes\n";
}

std::string bash_completion(const std::vector<DocumentedCommand>& commands) {
  std::string names;
  std::string cases;
  for (const DocumentedCommand& command : commands) {
    names += (names.empty() ? "" : " ") + command.name;
    cases +=
        fmt::format("    {}) choices={} flags={} ;;\n", command.name,
                    shell_quoted(joined_choices(command)), shell_quoted(joined_names(command)));
  }
  return fmt::format(
      R"(# Completion of mayfly's commands and flags; written by `mayfly documentation`.

_mayfly() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} choices='' flags=''
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W {} -- "$word")
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}  esac
  if [[ $word == -* ]]; then
    if [[ -z $flags ]]; then  # only the command itself knows them, perhaps by its next word
      local -a asked=("${{COMP_WORDS[@]:0:2}}")
      [[ $COMP_CWORD -gt 2 && ${{COMP_WORDS[2]}} != -* ]] && asked+=("${{COMP_WORDS[2]}}")
      flags=$("${{asked[@]}}" --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]*')
    fi
    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")
  elif ((COMP_CWORD == 2)); then
    if [[ -z $choices && -z $flags ]]; then  # the same: a program of its own lists its words
      choices=$("${{COMP_WORDS[@]:0:2}}" --help 2>/dev/null | grep -oE '^  [a-z]+')
    fi
    mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$word")
  fi
}}

complete -o default -F _mayfly mayfly  # where nothing of this fits: names of files
)",
      shell_quoted(names), cases);
}

std::string zsh_completion(const std::vector<DocumentedCommand>& commands) {
  std::string list;
  std::string cases;
  for (const DocumentedCommand& command : commands) {
    list += "    " + shell_quoted(command.name + ":" + command.help) + "\n";
    cases += "    " + command.name + ")\n      _arguments";
    for (const FlagDescription& flag : command.flags) {
      cases += " \\\n        " + zsh_flag(flag);
    }
    if (!command.choices.empty()) {
      cases += " \\\n        " +
               shell_quoted("1:" + std::string("argument:(") + joined_choices(command) + ")");
    }
    cases += " \\\n        '*:argument:_files'\n      ;;\n";
  }
  return fmt::format(R"(#compdef mayfly
# Completion of mayfly's commands and flags; written by `mayfly documentation`.

_mayfly() {{
  local -a commands
  commands=(
{}  )
  if ((CURRENT == 2)); then
    _describe -t commands command commands
    return
  fi
  local command=$words[2]
  shift words
  ((CURRENT--))
  case $command in
{}  esac
}}

_mayfly "$@"
)",
                     list, cases);
}

int documentation(const ParsedArguments& arguments, Context& context) {
  if (arguments.positionals.size() != 1 || arguments.positionals.front().empty()) {
    return context.complain("documentation expects one folder, such as ~/.local/share", kExitUsage);
  }
  const Result<void> written = write_all(arguments.positionals.front());
  return written.ok() ? kExitDone : context.complain(written.error());
}

}  // namespace mayfly::cli
