#pragma once

// For tests: runs a simulated job with parameter servers and checks its result.

#include <gtest/gtest.h>

#include "tests/sim/parameter_server_checks.hpp"

namespace mayfly::sim {

/// Runs a job with these options; the test fails if the result violates a promise.
inline PsResult checked(const PsOptions& options) {
  PsResult result = run_parameter_server(options);
  EXPECT_EQ(violation(options, result), "") << named(options);
  return result;
}

}  // namespace mayfly::sim
