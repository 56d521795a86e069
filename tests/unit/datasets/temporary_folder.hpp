#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::datasets {

using test_support::TemporaryFolder;

/// Writes a file, with the folders it needs.
inline void write_file(const std::string& path, const std::vector<std::uint8_t>& content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(content.data()),
             static_cast<std::streamsize>(content.size()));
}

}  // namespace mayfly::datasets
