#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "benchmarks/bench.hpp"

namespace mayfly::bench {

/// Runs commands with benchmarks that only record their arguments.
class BenchTest : public ::testing::Test {
 protected:
  int run(const std::vector<std::string>& words) {
    out_.str("");
    err_.str("");
    started_.clear();
    return run_bench(words, context_);
  }
  [[nodiscard]] std::string out() const { return out_.str(); }
  [[nodiscard]] std::string err() const { return err_.str(); }

  std::ostringstream out_;
  std::ostringstream err_;
  BenchContext context_{{out_, err_, false, {}, {}, nullptr}, {}};
  std::string started_;  // the benchmark that ran
};

}  // namespace mayfly::bench
