#include "base/beside_program.hpp"

#include <array>
#include <filesystem>
#include <system_error>

namespace mayfly {

std::string find_beside_program(const std::string& file) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& candidate : std::array{folder, folder / "../lib/mayfly"}) {
    if (fs::is_regular_file(candidate / file, error)) {
      return candidate / file;
    }
  }
  return {};
}

}  // namespace mayfly
