#include <unistd.h>

#include <iostream>

#include "base/file.hpp"
#include "base/log.hpp"
#include "benchmarks/bench.hpp"
#include "benchmarks/ranks/group_rank.hpp"
#include "cli/guarded_main.hpp"

namespace {

using namespace mayfly;

int measure_elastic(const std::string& name, const bench::ElasticBenchOptions& options) {
  if (find_beside_program("mayfly").empty()) {
    return engine::refuse(
        {Errc::kNotFound,
         "bench: mayfly is not in the folder of this program; scripts/build builds it"},
        engine::kExitFailed);
  }
  return name == "recovery" ? bench::bench_recovery(options)
         : name == "join"   ? bench::bench_join(options)
         : name == "drain"  ? bench::bench_drain(options)
         : name == "detect" ? bench::bench_detect(options)
                            : bench::bench_goodput(options);
}

int run(const std::vector<std::string>& words) {
  bench::BenchContext context{
      {std::cout, std::cerr, ::isatty(STDERR_FILENO) == 1, {}, {}, nullptr},
      {measure_elastic, bench::bench_step, bench::bench_data, bench::bench_allreduce,
       bench::bench_reform, bench::run_bench_rank, bench::bench_ps}};
  // Standard output is for results; a job opens a log of its own later.
  log::open("mayfly", "", log::Level::kWarning);
  return bench::run_bench(words, context);
}

}  // namespace

int main(int argc, char** argv) {
  return mayfly::cli::guarded_main(argc, argv, run);
}
