#pragma once

// The program mayfly-bench, which `mayfly bench` starts.

#include <functional>
#include <string>
#include <vector>

#include "benchmarks/allreduce/allreduce_bench.hpp"
#include "benchmarks/data/data_bench.hpp"
#include "benchmarks/elastic/elastic_bench.hpp"
#include "benchmarks/parameter_server/ps_bench.hpp"
#include "benchmarks/reform/reform_bench.hpp"
#include "benchmarks/step/step_bench.hpp"
#include "cli/context.hpp"

namespace mayfly::bench {

/// The functions that run the benchmarks. main.cpp passes the real ones, tests pass doubles.
struct Benches {
  /// By name: recovery, join, drain, detect or goodput.
  std::function<int(const std::string& name, const ElasticBenchOptions&)> elastic;
  std::function<int(const StepBenchOptions&)> step;
  std::function<int(const DataBenchOptions&)> data;
  std::function<int(const AllReduceBenchOptions&)> allreduce;
  std::function<int(const ReformBenchOptions&)> reform;
  /// Not for users: runs a process that a benchmark of communication starts (ranks/group_rank.hpp).
  std::function<int(const std::vector<std::string>& words)> rank;
  std::function<int(const PsBenchOptions&)> ps;
};

struct BenchContext : cli::Context {
  Benches benches;
};

/// `mayfly bench NAME [words...]`. Each prints one JSON object per line with --json.
struct BenchCommand {
  std::string name;
  std::string help;  ///< one line
  std::function<int(const std::vector<std::string>& words, BenchContext& context)> run;
};

/// The benchmarks of `mayfly bench`, by name; a new one is added in bench.cpp.
[[nodiscard]] const std::vector<BenchCommand>& bench_commands();

/// Runs the benchmark named by the first word.
int run_bench(const std::vector<std::string>& words, BenchContext& context);

}  // namespace mayfly::bench
