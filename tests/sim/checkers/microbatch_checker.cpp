#include "tests/sim/checkers/microbatch_checker.hpp"

namespace mayfly::sim {

void MicrobatchChecker::on_reduced(ViewId view, std::uint64_t step,
                                   const std::vector<elastic::MicrobatchSet>& parts) {
  const auto where = [step, view] {
    return "step " + std::to_string(step) + " of view " + std::to_string(value(view));
  };
  elastic::MicrobatchSet seen;
  for (const elastic::MicrobatchSet& part : parts) {
    violations_.expect(!part.intersects(seen),
                       [&] { return where() + " counts a microbatch twice"; });
    seen.add_all(part);
  }
  violations_.expect(seen == elastic::MicrobatchSet::range(0, microbatches_), [&] {
    return where() + " counts " + std::to_string(seen.count()) + " of " +
           std::to_string(microbatches_) + " microbatches";
  });
}

}  // namespace mayfly::sim
