#include "benchmarks/data/data_bench.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <optional>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "base/time.hpp"
#include "benchmarks/bench_arguments.hpp"
#include "benchmarks/step/machine_peak.hpp"
#include "datasets/loader.hpp"
#include "engine/membership/exit_codes.hpp"

namespace mayfly::bench {
namespace {

constexpr std::uint32_t kMicrobatch = 16;
constexpr std::uint32_t kMicrobatchesPerStep = 8;

struct LoaderRate {
  std::uint64_t images = 0;
  double cpu_seconds = 0;
  double seconds = 0;
  std::optional<Error> failure;
};

/// Takes microbatches for so long; nobody prepares them ahead, so take() does the work.
LoaderRate take_for(datasets::Loader& loader, std::atomic<std::uint64_t>& next, double seconds) {
  LoaderRate rate;
  const Instant begin = monotonic_now();
  const double cpu_begin = thread_cpu_seconds();
  while (rate.seconds < seconds) {
    const std::uint64_t number = next.fetch_add(1);
    std::unique_ptr<datasets::PreparedBatch> batch =
        loader.take(number / kMicrobatchesPerStep + 1,
                    static_cast<std::uint32_t>(number % kMicrobatchesPerStep));
    if (batch->failure.has_value()) {
      rate.failure = batch->failure;
      return rate;
    }
    loader.recycle(std::move(batch));
    rate.images += kMicrobatch;
    rate.seconds = to_seconds(monotonic_now() - begin);
  }
  rate.cpu_seconds = thread_cpu_seconds() - cpu_begin;
  return rate;
}

void print(const DataBenchOptions& options, const datasets::DatasetPair& data,
           const std::vector<LoaderRate>& rates) {
  double per_second = 0;
  double per_cpu_second = 0;
  for (const LoaderRate& rate : rates) {
    per_second += static_cast<double>(rate.images) / rate.seconds;
    per_cpu_second += static_cast<double>(rate.images) / rate.cpu_seconds;
  }
  per_cpu_second /= static_cast<double>(rates.size());
  if (options.json) {
    fmt::print(R"({{"data":"{}","encoded":{},"image_size":{},"threads":{},)"
               R"("images_per_second":{:.1f},"images_per_cpu_second":{:.1f}}})"
               "\n",
               data.name, data.encoded, data.train->image_size(), options.threads, per_second,
               per_cpu_second);
  } else {
    fmt::print("{} at {} pixels{}, {} thread(s): {:.0f} images/s, {:.0f} per CPU-second\n",
               data.name, data.train->image_size(), data.encoded ? ", decoded each time" : "",
               options.threads, per_second, per_cpu_second);
  }
}

cli::CommandSpec data_spec() {
  cli::CommandSpec spec;
  spec.name = "bench data";
  spec.help = "images per second of reading, decoding, cropping and normalising";
  spec.options = {{"seconds", "S", "measuring time (default 5)"}, {"json", "", "one JSON object"}};
  spec.settings = {"data", "image_size", "threads", "skip_corrupt"};
  return spec;
}

Result<DataBenchOptions> data_options(const cli::ParsedArguments& arguments) {
  engine::JobConfig config;
  TRY(read_settings(arguments, config));
  DataBenchOptions options;
  options.data = config.data;
  options.image_size = config.image_size;
  options.threads = std::max(1U, config.threads);
  options.skip_corrupt = config.skip_corrupt;
  options.json = arguments.has("json");
  TRY(cli::read_number(arguments, "seconds", options.seconds));
  return options;
}

}  // namespace

int bench_data(const DataBenchOptions& options) {
  datasets::OpenOptions open;
  open.image_size = static_cast<int>(options.image_size);
  open.skip_corrupt = options.skip_corrupt;
  const Result<datasets::DatasetPair> data = datasets::open_dataset(options.data, open);
  if (!data.ok()) {
    log::error(data.error().detail);
    return engine::kExitUsage;
  }
  datasets::LoaderOptions loading;
  loading.global_batch = kMicrobatch * kMicrobatchesPerStep;
  loading.microbatch = kMicrobatch;
  loading.threads = 0;
  const std::unique_ptr<datasets::Loader> loader = datasets::make_loader(data.value(), loading);
  std::atomic<std::uint64_t> next{0};
  std::vector<LoaderRate> rates(options.threads);
  std::vector<std::thread> threads;
  for (LoaderRate& rate : rates) {
    threads.emplace_back([&] {
      rate = take_for(*loader, next, options.seconds / 5);  // warm-up
      if (!rate.failure.has_value()) {
        rate = take_for(*loader, next, options.seconds);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const LoaderRate& rate : rates) {
    if (rate.failure.has_value()) {
      log::error(rate.failure->detail);
      return engine::kExitFailed;
    }
  }
  print(options, data.value(), rates);
  return engine::kExitDone;
}

BenchCommand data_command() {
  return make_command(data_spec(), data_options, &Benches::data);
}

}  // namespace mayfly::bench
