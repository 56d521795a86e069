#include "benchmarks/step/step_work.hpp"

#include "base/random.hpp"
#include "base/time.hpp"
#include "engine/reduction/model_layout.hpp"

namespace mayfly::bench {
namespace {

constexpr std::int32_t kExponent = 4;

}  // namespace

StepWork::StepWork(const nn::Model& of, std::uint32_t size, std::uint32_t images_per_update,
                   bool exact)
    : model(of),
      microbatch_size(size),
      microbatches(images_per_update / size),
      layout(engine::layout_of(of)),
      sums(layout, exact ? engine::Wire::kInt32 : engine::Wire::kFp32, microbatches),
      exponents(layout.blocks().block_count(), kExponent),
      vector(layout.element_count()),
      state(nn::make_initial_state(of, 1, exponents.size(), kExponent)),
      images(size * 3 * static_cast<std::size_t>(of.image_size) *
             static_cast<std::size_t>(of.image_size)),
      labels(size) {
  RandomStream random(CounterRandom(1));
  for (float& x : images) {
    x = static_cast<float>(random.unit() * 2 - 1);
  }
  for (std::uint16_t& label : labels) {
    label = static_cast<std::uint16_t>(random.below(static_cast<std::uint64_t>(of.classes)));
  }
}

UpdateCount run_updates(double seconds, const std::function<void()>& one_update) {
  UpdateCount count;
  const Instant begin = monotonic_now();
  do {
    one_update();
    ++count.updates;
    count.seconds = to_seconds(monotonic_now() - begin);
  } while (count.seconds < seconds);
  return count;
}

}  // namespace mayfly::bench
