#include "library/process_facts.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "engine/config/config.hpp"

extern char** environ;

namespace mayfly::library {

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> copy;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (const std::size_t sign = text.find('='); sign != std::string::npos) {
      copy.emplace(text.substr(0, sign), text.substr(sign + 1));
    }
  }
  return copy;
}

Result<std::string> find_program() {
  const auto variables = environment();
  if (const auto named = variables.find(engine::kProgramVariable); named != variables.end()) {
    return named->second;
  }
  Dl_info info{};
  namespace fs = std::filesystem;
  std::error_code absent;
  if (::dladdr(reinterpret_cast<const void*>(&find_program), &info) != 0) {
    const fs::path folder = fs::canonical(info.dli_fname, absent).parent_path();
    for (const fs::path& path : {folder / "mayfly", folder.parent_path() / "bin" / "mayfly",
                                 folder.parent_path().parent_path() / "bin" / "mayfly"}) {
      if (fs::is_regular_file(path, absent) && ::access(path.c_str(), X_OK) == 0) {
        return path.string();
      }
    }
  }
  return Error{Errc::kNotFound,
               std::string("the program mayfly is not beside its library; name it with ") +
                   engine::kProgramVariable};
}

}  // namespace mayfly::library
