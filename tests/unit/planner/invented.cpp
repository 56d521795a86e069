#include "tests/unit/planner/invented.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.hpp"

namespace mayfly::planner {

Calibration invented_calibration(const std::string& left_out) {
  Calibration calibration;
  for (const auto& file : std::filesystem::directory_iterator(MAYFLY_INVENTED_DIR)) {
    std::string text = read_text_file(file.path().string(), 1 << 20).value();
    for (std::size_t at = 0; !left_out.empty();) {
      at = text.find("\n" + left_out, at);
      if (at == std::string::npos) {
        break;
      }
      text.erase(at, text.find('\n', at + 1) - at);
    }
    const Result<void> added = add_table(file.path().filename().string(), text, calibration);
    EXPECT_TRUE(added.ok()) << added.error().detail;
  }
  return calibration;
}

}  // namespace mayfly::planner
