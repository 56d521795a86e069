#include <filesystem>

#include "cli/commands.hpp"
#include "elastic/net/job_token.hpp"

namespace mayfly::cli {

int token(const ParsedArguments& arguments, Context& context) {
  const std::vector<std::string>& words = arguments.positionals;
  if (words.size() > 1) {
    return context.complain("token: unexpected argument '" + words[1] + "'", kExitUsage);
  }
  const Bytes made = elastic::make_token(arguments.has("tls"));
  if (words.empty()) {
    context.out << elastic::token_to_text(made) << "\n";
    return kExitDone;
  }
  std::error_code failure;
  if (std::filesystem::exists(std::filesystem::symlink_status(words[0], failure))) {
    return context.complain(words[0] +
                                " already exists, and may be the token of a running job; "
                                "choose another name or remove it",
                            kExitUsage);
  }
  const Result<void> written = elastic::write_token_file(words[0], made);
  return written.ok() ? kExitDone : context.complain(written.error());
}

}  // namespace mayfly::cli
