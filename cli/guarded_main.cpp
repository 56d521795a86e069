#include "cli/guarded_main.hpp"

#include <signal.h>

#include <exception>
#include <filesystem>
#include <iostream>

#include "base/log.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "engine/membership/exit_codes.hpp"

namespace mayfly::cli {

int guarded_main(int argc, char** argv, int (*run)(const std::vector<std::string>& words)) {
  open_closed_standard_descriptors();
  ::signal(SIGPIPE, SIG_IGN);  // a lost peer is an error value, not the end of this process
  ::signal(SIGXFSZ, SIG_IGN);  // and so is a file that may not grow any more: a full disk
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::filesystem::filesystem_error& failure) {
    // Of a path that somebody gave us: links in a circle, a file in the place of a folder.
    std::cerr << "mayfly: " << failure.path1().string() << ": " << failure.code().message() << "\n";
    return engine::kExitUsage;
  } catch (const std::exception& failure) {
    std::cerr << "mayfly: " << reason_of(failure) << "\n";
    return engine::kExitFailed;
  }
}

}  // namespace mayfly::cli
