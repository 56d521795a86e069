// `mayfly documentation`: manual pages and shell completions, in the layout of /usr/share.

#include "base/file.hpp"
#include "cli/commands.hpp"
#include "cli/documentation.hpp"

namespace mayfly::cli {
namespace {

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

int documentation(const ParsedArguments& arguments, Context& context) {
  if (arguments.positionals.size() != 1) {
    return context.complain("documentation expects one folder, such as ~/.local/share", kExitUsage);
  }
  const Result<void> written = write_all(arguments.positionals.front());
  return written.ok() ? kExitDone : context.complain(written.error());
}

}  // namespace mayfly::cli
