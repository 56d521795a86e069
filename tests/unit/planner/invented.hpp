#pragma once

// A calibration folder whose truth is known: step times of "plain" networks are 0.05 + 0.1 g on A1
// and 0.02 + 0.04 g on B2 (g = gflops), half of B2's on C3; parameter servers take 1000 / (0.1
// tensors + 1.25 MB) updates per second, two of them 1.6 times that, with a bend of 4; a whole job
// has 40000 updates of net-20 at 0.97 of the steady speed. Measurements scatter by 1 %.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/file.hpp"
#include "planner/calibration/calibration.hpp"

namespace mayfly::planner {

/// The calibration of that folder without the rows of `left_out`, such as "A1,net-10,".
inline Calibration invented_calibration(const std::string& left_out = {}) {
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
