#include "benchmarks/data/data_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "base/parse.hpp"
#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "benchmarks/bench_arguments.hpp"
#include "benchmarks/step/machine_peak.hpp"
#include "datasets/host_memory.hpp"
#include "datasets/image_store.hpp"
#include "datasets/loader.hpp"
#include "datasets/prepared_store.hpp"
#include "engine/membership/exit_codes.hpp"

namespace mayfly::bench {
namespace {

constexpr std::uint32_t kMicrobatch = 16;
constexpr std::uint32_t kMicrobatchesPerStep = 8;

/// The microbatches that one thread has taken.
struct Taken {
  std::uint64_t images = 0;
  std::uint64_t bytes = 0;       // bytes of the images, as they are stored
  std::uint64_t from_store = 0;  // the bytes that came from a store
  double cpu_seconds = 0;
  double seconds = 0;
  std::optional<Error> failure;
};

/// The microbatches that all threads together have taken in one pass.
struct Pass {
  std::string way;        // source of the images; empty = the place of the data set
  std::uint64_t end = 0;  // the microbatch after the last
  double per_second = 0;
  double per_cpu_second = 0;
  double from_store = 0;  // share of the bytes
};

/// Takes microbatches for so long, up to `end`; they are not prepared ahead, so take() does the
/// work.
Taken take_for(datasets::Loader& loader, const datasets::Dataset& train,
               std::atomic<std::uint64_t>& next, std::uint64_t end, double seconds) {
  Taken taken;
  const Instant begin = monotonic_now();
  const double cpu_begin = thread_cpu_seconds();
  while (taken.seconds < seconds) {
    const std::uint64_t number = next.fetch_add(1);
    if (number >= end) {
      break;
    }
    std::unique_ptr<datasets::PreparedBatch> batch =
        loader.take(number / kMicrobatchesPerStep + 1,
                    static_cast<std::uint32_t>(number % kMicrobatchesPerStep));
    if (batch->failure.has_value()) {
      taken.failure = batch->failure;
      break;
    }
    for (const std::uint32_t sample : batch->samples) {
      taken.bytes += train.stored_bytes(sample);
    }
    taken.from_store += batch->bytes_from_store;
    loader.recycle(std::move(batch));
    taken.images += kMicrobatch;
    taken.seconds = to_seconds(monotonic_now() - begin);
  }
  taken.cpu_seconds = thread_cpu_seconds() - cpu_begin;
  return taken;
}

/// All threads take microbatches from `first` on, in turn.
Result<Pass> take_all(datasets::Loader& loader, const datasets::Dataset& train,
                      std::uint32_t thread_count, std::uint64_t first, std::uint64_t end,
                      double seconds) {
  std::atomic<std::uint64_t> next{first};
  std::vector<Taken> all(thread_count);
  std::vector<std::thread> threads;
  for (Taken& taken : all) {
    threads.emplace_back([&] { taken = take_for(loader, train, next, end, seconds); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  Pass pass;
  pass.end = std::min(next.load(), end);
  Taken sum;
  for (const Taken& taken : all) {
    if (taken.failure.has_value()) {
      return *taken.failure;
    }
    if (taken.images > 0) {
      pass.per_second += static_cast<double>(taken.images) / taken.seconds;
    }
    sum.images += taken.images;
    sum.cpu_seconds += taken.cpu_seconds;
    sum.bytes += taken.bytes;
    sum.from_store += taken.from_store;
  }
  pass.per_cpu_second = static_cast<double>(sum.images) / sum.cpu_seconds;
  pass.from_store = static_cast<double>(sum.from_store) / static_cast<double>(sum.bytes);
  return pass;
}

std::string line_of(const Pass& pass) {
  return fmt::format("{:.0f} images/s, {:.0f} per CPU-second", pass.per_second,
                     pass.per_cpu_second);
}

void print(const DataBenchOptions& options, const datasets::DatasetPair& data, const Pass& pass) {
  if (options.json) {
    fmt::print(R"({{"data":"{}","encoded":{},"image_size":{},"threads":{},"way":"{}",)"
               R"("images_per_second":{:.1f},"images_per_cpu_second":{:.1f},"from_store":{:.4f}}})"
               "\n",
               data.name, data.encoded, data.train->image_size(), options.threads, pass.way,
               pass.per_second, pass.per_cpu_second, pass.from_store);
  } else if (pass.way.empty()) {
    fmt::print("{} at {} pixels{}, {} thread(s): {}\n", data.name, data.train->image_size(),
               data.encoded ? ", decoded each time" : "", options.threads, line_of(pass));
  } else {
    fmt::print("{}: {}, {:.1f} % of the bytes from memory\n", pass.way, line_of(pass),
               100 * pass.from_store);
  }
}

cli::CommandSpec data_spec() {
  cli::CommandSpec spec;
  spec.name = "bench data";
  spec.help = "images per second of reading, decoding, cropping and normalising";
  spec.options = {{"seconds", "S", "measuring time (default 5)"}, {"json", "", "one JSON object"}};
  spec.settings = {"data", "image_size", "threads", "skip_corrupt", "store", "prepared_store"};
  spec.defaults.threads = 1;
  return spec;
}

Result<std::uint64_t> size_of(const std::string& flag, const std::string& text) {
  const auto bytes = bytes_in(text.empty() ? "0" : text, 0, datasets::kStoreBytesMax);
  return bytes ? Result<std::uint64_t>(*bytes) : bad_flag(flag, text, "a size such as 1GiB");
}

Result<DataBenchOptions> data_options(const cli::ParsedArguments& arguments) {
  engine::JobConfig config;
  TRY(read_settings(arguments, config));
  DataBenchOptions options;
  options.data = config.data;
  options.image_size = config.image_size;
  options.threads = std::max(1U, config.threads);
  options.skip_corrupt = config.skip_corrupt;
  TRY_ASSIGN(options.store_bytes, size_of("store", config.store));
  TRY_ASSIGN(options.prepared_bytes, size_of("prepared-store", config.prepared_store));
  options.json = arguments.has("json");
  TRY(cli::read_number(arguments, "seconds", options.seconds));
  return options;
}

/// The data set, with the stores of --store and --prepared-store, if given.
struct Opened {
  datasets::DatasetPair data;
  std::optional<datasets::DatasetPair> with_store;
  std::shared_ptr<datasets::PreparedStore> prepared;
};

Result<Opened> open_all(const DataBenchOptions& options) {
  Opened opened;
  datasets::OpenOptions open;
  open.image_size = static_cast<int>(options.image_size);
  open.skip_corrupt = options.skip_corrupt;
  TRY_ASSIGN(opened.data, datasets::open_dataset(options.data, open));
  if ((options.store_bytes > 0 || options.prepared_bytes > 0) && !opened.data.encoded) {
    return Error{Errc::kInvalidInput, "these images are decoded once and need no store"};
  }
  if (options.store_bytes > 0) {
    open.store_bytes = options.store_bytes;
    open.store_is_unshared = true;  // the store of a running job would already be full
    TRY_ASSIGN(opened.with_store, datasets::open_dataset(options.data, open));
  }
  if (options.prepared_bytes > 0) {
    const auto side = static_cast<std::uint64_t>(opened.data.train->image_size());
    TRY_ASSIGN(opened.prepared, datasets::PreparedStore::join({.key = datasets::unshared_key(),
                                                               .sample_bytes = 3 * side * side,
                                                               .bytes_max = options.prepared_bytes,
                                                               .folder = {}}));
  }
  return opened;
}

/// Measures a pass that fills the memory, and one that takes the same microbatches from it.
Result<void> measure_memory(const DataBenchOptions& options, const std::string& what,
                            const datasets::DatasetPair& data,
                            const datasets::LoaderOptions& loading) {
  const std::unique_ptr<datasets::Loader> loader = datasets::make_loader(data, loading);
  std::uint64_t end = std::max<std::uint64_t>(1, data.train->size() / kMicrobatch);  // of the epoch
  for (const std::string way : {"into ", "from "}) {
    TRY_ASSIGN(Pass pass, take_all(*loader, *data.train, options.threads, 0, end, options.seconds));
    pass.way = way + what;
    end = pass.end;
    print(options, data, pass);
  }
  return {};
}

Result<void> measure(const DataBenchOptions& options, const Opened& opened) {
  datasets::LoaderOptions loading;
  loading.global_batch = kMicrobatch * kMicrobatchesPerStep;
  loading.microbatch = kMicrobatch;
  loading.threads = 0;
  const std::unique_ptr<datasets::Loader> loader = datasets::make_loader(opened.data, loading);
  const auto take = [&](std::uint64_t first, double seconds) {
    return take_all(*loader, *opened.data.train, options.threads, first, UINT64_MAX, seconds);
  };
  TRY_ASSIGN(const Pass warm_up, take(0, options.seconds / 5));
  TRY_ASSIGN(const Pass pass, take(warm_up.end, options.seconds));
  print(options, opened.data, pass);
  if (opened.with_store) {
    TRY(measure_memory(options, "the store", *opened.with_store, loading));
  }
  if (opened.prepared != nullptr) {
    loading.prepared = opened.prepared;
    TRY(measure_memory(options, "prepared images", opened.data, loading));
  }
  return {};
}

}  // namespace

int bench_data(const DataBenchOptions& options) {
  const Result<Opened> opened = open_all(options);
  if (!opened.ok()) {
    log::error(opened.error().detail);
    return engine::kExitUsage;
  }
  if (const Result<void> done = measure(options, opened.value()); !done.ok()) {
    log::error(done.error().detail);
    return engine::kExitFailed;
  }
  return engine::kExitDone;
}

BenchCommand data_command() {
  return make_command(data_spec(), data_options, &Benches::data);
}

}  // namespace mayfly::bench
