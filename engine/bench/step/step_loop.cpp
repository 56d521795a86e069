#include "engine/bench/step/step_loop.hpp"

#include <utility>

#include "base/random.hpp"
#include "base/time.hpp"
#include "nn/cpu/cpu_engine.hpp"
#include "nn/optimizer.hpp"

namespace mayfly::engine {
namespace {

constexpr std::int32_t kExponent = 4;  // generous: nothing overflows, so nothing is done twice
constexpr float kLearningRate = 1e-4F;

}  // namespace

StepLoop::StepLoop(const nn::Model& model, std::uint32_t batch, std::uint32_t images_per_update)
    : model_(model),
      batch_(batch),
      microbatches_(images_per_update / batch),
      layout_(model),
      sums_(layout_, true, microbatches_),
      exponents_(layout_.blocks().block_count(), kExponent),
      vector_(layout_.element_count()),
      state_(nn::make_initial_state(model, 1, exponents_.size(), kExponent)) {
  const auto side = static_cast<std::size_t>(model.image_size);
  RandomStream random(CounterRandom(1));
  images_.resize(batch * 3 * side * side);
  labels_.resize(batch);
  for (float& x : images_) {
    x = static_cast<float>(random.unit() * 2 - 1);
  }
  for (std::uint16_t& label : labels_) {
    label = static_cast<std::uint16_t>(random.below(static_cast<std::uint64_t>(model.classes)));
  }
}

Result<void> StepLoop::prepare(nn::Dtype dtype, bool timed) {
  if (timed) {
    timer_.emplace(model_, thread_cpu_seconds);
  }
  Result<std::unique_ptr<nn::StepEngine>> engine = nn::cpu::make_cpu_engine(
      model_, batch_, {.dtype = dtype, .observer = timed ? &*timer_ : nullptr});
  if (!engine.ok()) {
    return std::move(engine).error();
  }
  engine_ = std::move(engine).value();
  return {};
}

ThreadRate StepLoop::run_for(double seconds) {
  ThreadRate rate;
  if (timer_.has_value()) {
    timer_->clear();
  }
  const Instant begin = monotonic_now();
  const double cpu_begin = thread_cpu_seconds();
  do {
    one_update();
    rate.images += std::uint64_t{microbatches_} * batch_;
    rate.seconds = to_seconds(monotonic_now() - begin);
  } while (rate.seconds < seconds);
  rate.cpu_seconds = thread_cpu_seconds() - cpu_begin;
  if (timer_.has_value()) {
    timer_->passed(nn::cpu::StepPart::kOutside, nullptr);  // the last update
  }
  return rate;
}

StepSeconds StepLoop::times() const {
  return timer_.has_value() ? timer_->seconds() : StepSeconds{};
}

void StepLoop::one_update() {
  sums_.clear(exponents_);
  const nn::Weights weights{state_.parameters.span(), state_.statistics.span(),
                            value(state_.committed)};
  const std::span<float> all = vector_.span();
  for (std::uint32_t i = 0; i < microbatches_; ++i) {
    (void)engine_->train(weights, {images_, labels_}, 0, all.subspan(layout_.parameters_offset()),
                         all.subspan(layout_.statistics_offset(), model_.statistic_count), *this);
    for (std::size_t b = 0; b < layout_.buckets().size(); ++b) {
      sums_.add_bucket(b, all);
    }
  }
  nn::sgd_update({}, kLearningRate, all.subspan(layout_.parameters_offset()),
                 state_.parameters.span(), state_.momentum.span());
  state_.committed = next(state_.committed);
}

}  // namespace mayfly::engine
