#include "benchmarks/step/step_loop.hpp"

#include "base/try_assign.hpp"
#include "nn/cpu/cpu_engine.hpp"
#include "nn/optimizer.hpp"

namespace mayfly::bench {

Result<void> StepLoop::prepare(nn::Dtype dtype, bool timed) {
  if (timed) {
    timer_.emplace(work_.model, thread_cpu_seconds);
  }
  TRY_ASSIGN(engine_,
             nn::cpu::make_cpu_engine(work_.model, work_.microbatch_size,
                                      {.dtype = dtype, .observer = timed ? &*timer_ : nullptr}));
  return {};
}

ThreadRate StepLoop::run_for(double seconds) {
  if (timer_.has_value()) {
    timer_->clear();
  }
  const double cpu_begin = thread_cpu_seconds();
  const UpdateCount count = run_updates(seconds, [this] { one_update(); });
  const double cpu_seconds = thread_cpu_seconds() - cpu_begin;
  if (timer_.has_value()) {
    timer_->passed(nn::cpu::StepPart::kOutside, nullptr);  // the last update
  }
  return {.images = count.updates * work_.microbatches * work_.microbatch_size,
          .seconds = count.seconds,
          .cpu_seconds = cpu_seconds};
}

StepSeconds StepLoop::times() const {
  return timer_.has_value() ? timer_->seconds() : StepSeconds{};
}

void StepLoop::one_update() {
  work_.sums.clear(work_.exponents);
  for (std::uint32_t i = 0; i < work_.microbatches; ++i) {
    (void)engine_->train(work_.weights(), work_.batch(), 0, work_.gradient(), work_.statistics(),
                         *this);
    for (std::size_t b = 0; b < work_.layout.buckets().size(); ++b) {
      work_.sums.add_bucket(b, work_.vector.span());
    }
  }
  nn::sgd_update({}, StepWork::kLearningRate, work_.gradient(), work_.state.parameters.span(),
                 work_.state.momentum.span());
  work_.state.committed = next(work_.state.committed);
}

}  // namespace mayfly::bench
