#include "library/process_facts.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "base/environment.hpp"
#include "engine/config/config.hpp"

namespace mayfly::library {

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
  return Error{
      Errc::kNotFound,
      std::string("the program mayfly is not in the folder of its library; name it with ") +
          engine::kProgramVariable};
}

}  // namespace mayfly::library
