#include "engine/bench_step.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <ctime>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "base/random.hpp"
#include "base/time.hpp"
#include "engine/exit_codes.hpp"
#include "engine/gradient_sums.hpp"
#include "nn/cpu/cpu_engine.hpp"
#include "nn/model_state.hpp"
#include "nn/optimizer.hpp"

namespace mayfly::engine {
namespace {

constexpr std::uint32_t kImagesPerUpdate = 128;
constexpr int kClasses = 10;

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

struct ThreadRate {
  std::uint64_t images = 0;
  double cpu_seconds = 0;
  double seconds = 0;
  Result<void> outcome;
};

/// One compute thread's private copy of a step: what a worker with one thread does.
class StepLoop final : public nn::GradientSink {
 public:
  StepLoop(const StepBenchOptions& options, const nn::Model& model)
      : options_(options),
        model_(model),
        layout_(model),
        sums_(layout_, true, std::max(1U, kImagesPerUpdate / options.batch)),
        exponents_(layout_.blocks().block_count(), 4),
        vector_(layout_.element_count()),
        state_(nn::make_initial_state(model, 1, exponents_.size(), 4)) {
    const auto pixels = static_cast<std::size_t>(model.image_size);
    RandomStream random(CounterRandom(1));
    images_.resize(options.batch * 3 * pixels * pixels);
    labels_.resize(options.batch);
    for (float& x : images_) {
      x = static_cast<float>(random.unit() * 2 - 1);
    }
    for (std::uint16_t& label : labels_) {
      label = static_cast<std::uint16_t>(random.below(kClasses));
    }
  }

  void run(ThreadRate& rate) {
    Result<std::unique_ptr<nn::StepEngine>> engine =
        nn::cpu::make_cpu_engine(model_, options_.batch);
    if (!engine.ok()) {
      rate.outcome = engine.error();
      return;
    }
    run_for(*engine.value(), options_.seconds / 5, rate);  // warm-up
    rate = {};
    run_for(*engine.value(), options_.seconds, rate);
  }

  void ready_from(std::size_t) override {}

 private:
  void run_for(nn::StepEngine& engine, double seconds_max, ThreadRate& rate) {
    const Instant begin = monotonic_now();
    const double cpu_begin = thread_cpu_seconds();
    while (rate.seconds < seconds_max) {
      one_update(engine);
      rate.images += std::max(kImagesPerUpdate / options_.batch, 1U) * options_.batch;
      rate.seconds = to_seconds(monotonic_now() - begin);
    }
    rate.cpu_seconds = thread_cpu_seconds() - cpu_begin;
  }

  void one_update(nn::StepEngine& engine) {
    sums_.clear(exponents_);
    const nn::Weights weights{state_.parameters.span(), state_.statistics.span(),
                              value(state_.committed)};
    for (std::uint32_t done = 0; done < kImagesPerUpdate; done += options_.batch) {
      (void)engine.train(
          weights, {images_, labels_}, 0, vector_.span().subspan(layout_.parameters_offset()),
          vector_.span().subspan(layout_.statistics_offset(), model_.statistic_count), *this);
      for (std::size_t b = 0; b < layout_.buckets().size(); ++b) {
        sums_.add_bucket(b, vector_.span());
      }
    }
    nn::sgd_update({}, 1e-4F, vector_.span().subspan(layout_.parameters_offset()),
                   state_.parameters.span(), state_.momentum.span());
    state_.committed = next(state_.committed);
  }

  const StepBenchOptions& options_;
  const nn::Model& model_;
  ReductionLayout layout_;
  GradientSums sums_;
  std::vector<std::int32_t> exponents_;
  AlignedBuffer<float> vector_;
  nn::ModelState state_;
  std::vector<float> images_;
  std::vector<std::uint16_t> labels_;
};

void print(const StepBenchOptions& options, const std::string& isa,
           const std::vector<ThreadRate>& rates) {
  double per_second = 0;
  double per_cpu_second = 0;
  for (const ThreadRate& rate : rates) {
    per_second += static_cast<double>(rate.images) / rate.seconds;
    per_cpu_second += static_cast<double>(rate.images) / rate.cpu_seconds;
  }
  per_cpu_second /= static_cast<double>(rates.size());
  if (options.json) {
    fmt::print(R"({{"model":"{}","batch":{},"threads":{},"dtype":"{}","isa":"{}",)"
               R"("images_per_second":{:.1f},"images_per_cpu_second":{:.1f}}})"
               "\n",
               options.model, options.batch, options.threads, options.dtype, isa, per_second,
               per_cpu_second);
  } else {
    fmt::print("{}, microbatch {}, {} thread(s), {}: {:.0f} images/s, {:.0f} per CPU-second\n",
               options.model, options.batch, options.threads, isa, per_second, per_cpu_second);
  }
}

}  // namespace

int bench_step(const StepBenchOptions& options) {
  if (options.dtype != "fp32") {
    log::error(fmt::format("dtype {} is not available on the CPU; fp32 is", options.dtype));
    return kExitUsage;
  }
  const Result<std::string> isa = nn::cpu::select_isa(options.isa);
  const Result<nn::Model> model = nn::make_model(options.model, kClasses);
  if (!isa.ok() || !model.ok()) {
    log::error(isa.ok() ? model.error().detail : isa.error().detail);
    return kExitUsage;
  }
  std::vector<ThreadRate> rates(options.threads);
  std::vector<std::thread> threads;
  for (ThreadRate& rate : rates) {
    threads.emplace_back([&] { StepLoop(options, model.value()).run(rate); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const ThreadRate& rate : rates) {
    if (!rate.outcome.ok()) {
      log::error(rate.outcome.error().detail);
      return kExitFailed;
    }
  }
  print(options, isa.value(), rates);
  return kExitDone;
}

}  // namespace mayfly::engine
