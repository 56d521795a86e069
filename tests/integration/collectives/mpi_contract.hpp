#pragma once

// Fixtures for the tests of the mpi contract. All ranks of an mpirun run each test at once.

#include <gtest/gtest.h>

#include "base/result.hpp"
#include "tests/integration/collectives/mpi_rank.hpp"

namespace mayfly::collectives::test {

class MpiContract : public testing::Test {
 protected:
  MpiRank& self_ = MpiRank::get();
};

/// Tests that abort operations, which is possible only with --enable-recovery.
class MpiAbort : public MpiContract {
 protected:
  void SetUp() override {
    if (!self_.elastic()) {
      GTEST_SKIP() << "MPI's own collectives cannot be stopped";
    }
  }
};

inline void expect_ok(const Result<void>& result) {
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().detail);
}

}  // namespace mayfly::collectives::test
