#pragma once

// For tests: a simulated job of parameter servers that is checked when it is over.

#include <gtest/gtest.h>

#include "tests/sim/parameter_server_checks.hpp"

namespace mayfly::sim {

/// Runs a schedule; fails if a promise is broken.
inline PsResult checked(const PsOptions& options) {
  PsResult result = run_parameter_server(options);
  EXPECT_EQ(violation(options, result), "") << named(options);
  return result;
}

}  // namespace mayfly::sim
