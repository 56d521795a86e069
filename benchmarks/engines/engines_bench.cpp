#include "benchmarks/engines/engines_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/time.hpp"
#include "engine/processes/exit_codes.hpp"
#include "engine/run/json_text.hpp"
#include "engine/run/run_directory.hpp"
#include "engine/training/device.hpp"
#include "nn/model.hpp"

namespace mayfly::bench {
namespace {

using nn::cuda::ConvKey;
using nn::cuda::EngineEntry;
using nn::cuda::EngineTable;
using nn::cuda::EngineTiming;

/// Engines whose results disagree with the first's.
std::size_t wrong_of(std::span<const EngineTiming> timings) {
  return static_cast<std::size_t>(
      std::ranges::count_if(timings, [](const EngineTiming& each) { return !each.agrees; }));
}

/// The sums over all convolutions that were measured.
struct Total {
  std::size_t measured = 0;
  std::size_t changed = 0;  ///< another engine than cuDNN's first
  std::size_t wrong = 0;    ///< engines whose results disagree with the first's
  double microseconds = 0;
  double first_microseconds = 0;

  void add(std::span<const EngineTiming> timings, const EngineEntry& entry) {
    ++measured;
    changed += entry.engine == timings.front().engine ? 0 : 1;
    wrong += wrong_of(timings);
    microseconds += entry.microseconds;
    first_microseconds += entry.first_microseconds;
  }
};

std::string total_line(const Total& total, std::size_t convolutions, const std::string& path,
                       bool json) {
  if (json) {
    return engine::JsonObject()
               .add("kind", engine::json_string("engine_table"))
               .add("path", engine::json_string(path))
               .add("convolutions", std::to_string(convolutions))
               .add("measured", std::to_string(total.measured))
               .add("changed", std::to_string(total.changed))
               .add("wrong_engines", std::to_string(total.wrong))
               .add("us", fmt::format("{:.2f}", total.microseconds))
               .add("first_us", fmt::format("{:.2f}", total.first_microseconds))
               .text() +
           "\n";
  }
  return fmt::format(
      "{}: {} of {} convolutions measured, {} with another engine than cuDNN's first; each once: "
      "{:.0f} us instead of {:.0f}; {} engines had other results and were left out\n",
      path, total.measured, convolutions, total.changed, total.microseconds,
      total.first_microseconds, total.wrong);
}

Result<void> make_table(const EnginesBenchOptions& options) {
  const Result<nn::Dtype> dtype = nn::parse_dtype(options.dtype);
  if (!dtype.ok()) {
    return dtype.error();
  }
  const Result<nn::Model> model =
      nn::make_usual_model(options.model, static_cast<int>(options.image_size));
  if (!model.ok()) {
    return model.error();
  }
  const Result<EngineTable> present = engine::engine_table_of(options.device);
  if (!present.ok()) {
    return present.error();
  }
  const std::string kind = present.value().kind();
  const std::string path = options.output.empty() ? kind + ".tsv" : options.output;
  Result<EngineTable> table = engine::read_engine_table(path, kind);
  if (!table.ok()) {
    return std::move(table).error();
  }
  const std::set<ConvKey> convolutions =
      nn::cuda::convolutions_of_step(model.value(), options.batch, dtype.value());
  const Instant begin = monotonic_now();
  Total total;
  const auto take = [&](const ConvKey& key, std::span<const EngineTiming> timings) {
    const EngineEntry entry = nn::cuda::fastest_of(timings);
    table.value().set(key, entry);
    total.add(timings, entry);
    fmt::print("{}", engine_line(key, timings, options.json));
    return to_ms(monotonic_now() - begin) < options.seconds * 1e3;
  };
  if (Result<void> timed =
          engine::time_gpu_engines(options.device, convolutions, {.rounds = options.rounds}, take);
      !timed.ok()) {
    return timed;
  }
  TRY(write_file_atomic(path, table.value().text()));
  fmt::print("{}", total_line(total, convolutions.size(), path, options.json));
  return {};
}

}  // namespace

std::string engine_line(const ConvKey& key, std::span<const EngineTiming> timings, bool json) {
  const EngineEntry entry = nn::cuda::fastest_of(timings);
  const std::string what = fmt::format("{} of {} in {}", nn::cuda::to_string(key.pass),
                                       key.shape.text(), nn::name_of(key.dtype));
  if (json) {
    return engine::JsonObject()
               .add("kind", engine::json_string("engine"))
               .add("convolution", engine::json_string(what))
               .add("fused", nn::cuda::is_fused(key.pass) ? "true" : "false")
               .add("engines", std::to_string(timings.size()))
               .add("wrong", std::to_string(wrong_of(timings)))
               .add("first", engine::json_string(timings.front().engine.text()))
               .add("first_us", fmt::format("{:.2f}", entry.first_microseconds))
               .add("engine", engine::json_string(entry.engine.text()))
               .add("us", fmt::format("{:.2f}", entry.microseconds))
               .text() +
           "\n";
  }
  return fmt::format("{}: {} in {:.1f} us, of {} engines; {} takes {:.1f}\n", what,
                     entry.engine.text(), entry.microseconds, timings.size(),
                     nn::cuda::is_fused(key.pass) ? "unfused it" : "cuDNN's first",
                     entry.first_microseconds);
}

int bench_engines(const EnginesBenchOptions& options) {
  const Result<void> made = make_table(options);
  if (!made.ok()) {
    log::error(made.error().detail);
    return engine::kExitUsage;
  }
  return engine::kExitDone;
}

}  // namespace mayfly::bench
