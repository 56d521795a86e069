#include "benchmarks/elastic/recovery_times.hpp"

#include <algorithm>

namespace mayfly::bench {
namespace {

std::uint32_t divided_up(std::uint32_t number, std::uint32_t by) {
  return (number + by - 1) / by;
}

}  // namespace

double least_redo_ms(std::uint32_t microbatches, const StepFacts& facts) {
  const std::uint32_t share = divided_up(microbatches, std::max(1U, facts.survivors));
  const std::uint32_t in_a_row = divided_up(share, std::max(1U, facts.threads));
  const double on_all_cores =
      static_cast<double>(microbatches) / static_cast<double>(std::max(1U, facts.cores));
  return facts.microbatch_ms * std::max(static_cast<double>(in_a_row), on_all_cores);
}

LossTimes times_of(const LossSeen& loss, const StepFacts& facts) {
  const elastic::Recovery& r = loss.recovery;
  const auto since = [&loss](Instant moment) { return to_ms(moment - loss.struck); };
  LossTimes times;
  times.detected_ms = since(r.detected);
  times.told_ms = since(r.told);
  times.stopped_ms = since(r.stopped);
  times.formed_ms = since(r.formed);
  times.synced_ms = since(r.synced);
  times.step_ms = since(r.step);
  const double into_step_ms = to_ms(loss.struck - loss.commit_before);
  const bool has_steps = r.committed > loss.step_before;
  times.steps_meanwhile =
      has_steps ? static_cast<double>(value(r.committed) - value(loss.step_before)) : 0;
  times.still_needed_ms =
      std::max(0.0, facts.undisturbed_ms * (1 + times.steps_meanwhile) - into_step_ms);
  times.redo_ms = has_steps ? 0 : least_redo_ms(r.redone_microbatches, facts);
  times.beyond_ms = times.step_ms - times.still_needed_ms - times.redo_ms;
  return times;
}

}  // namespace mayfly::bench
