#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "elastic/core/view.hpp"
#include "tests/sim/checkers/violations.hpp"
#include "tests/sim/sample_order.hpp"

namespace mayfly::sim {

/// Checks that in every epoch exactly one member uses each sample. It keeps a ledger of the samples
/// in the committed sums, and compares it with the hash that each sum contains, as the records of a
/// run do.
class SampleChecker {
 public:
  SampleChecker(Violations& violations, const SampleOrder& order)
      : violations_(violations), order_(order) {}

  /// A sum of these parts, one per member, is complete. If the step is computed again, its sum must
  /// have the same samples.
  void on_reduced(std::uint64_t step, const std::vector<elastic::MicrobatchSet>& parts);
  /// A member committed a sum with this hash of samples.
  void on_commit(MemberId member, std::uint64_t step, std::uint64_t samples_hash);
  /// The job is done: checks that every step up to this one was committed and no sample used twice.
  void on_end(std::uint64_t last_step);

 private:
  struct Used {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> samples;  // (epoch, sample), sorted
    std::uint64_t hash = 0;
  };

  Violations& violations_;
  const SampleOrder& order_;
  std::map<std::uint64_t, Used> steps_;
};

}  // namespace mayfly::sim
