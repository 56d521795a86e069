#include "tests/sim/checkers/sample_checker.hpp"

#include <algorithm>

namespace mayfly::sim {
namespace {

std::string name(std::uint64_t step) {
  return "step " + std::to_string(step);
}

}  // namespace

void SampleChecker::on_reduced(std::uint64_t step,
                               const std::vector<elastic::MicrobatchSet>& parts) {
  Used used;
  for (const elastic::MicrobatchSet& part : parts) {
    for (const std::uint32_t microbatch : part.list()) {
      order_.for_each(step, microbatch, [&used](const datasets::StreamEntry& entry) {
        used.samples.emplace_back(entry.epoch, entry.sample);
        used.hash += SampleOrder::hash(entry);
      });
    }
  }
  std::sort(used.samples.begin(), used.samples.end());
  const auto place = steps_.find(step);
  if (place == steps_.end()) {
    steps_.emplace(step, std::move(used));
    return;
  }
  violations_.expect(place->second.samples == used.samples,
                     [&] { return name(step) + " was computed again from other samples"; });
}

void SampleChecker::on_commit(MemberId member, std::uint64_t step, std::uint64_t samples_hash) {
  const auto place = steps_.find(step);
  if (place == steps_.end()) {
    violations_.add(name(step) + " was committed, but never reduced");
    return;
  }
  violations_.expect(place->second.hash == samples_hash, [&] {
    return name(step) + " of member " + std::to_string(value(member)) +
           " carries the hash of other samples";
  });
}

void SampleChecker::on_end(std::uint64_t last_step) {
  std::map<std::uint64_t, std::vector<std::uint32_t>> uses;  // by epoch, then by sample
  std::uint64_t last_epoch = 0;
  for (std::uint64_t step = 1; step <= last_step; ++step) {
    for (const auto& [epoch, sample] : steps_[step].samples) {
      std::vector<std::uint32_t>& of_epoch = uses[epoch];
      of_epoch.resize(order_.sample_count());
      ++of_epoch[sample];
      last_epoch = std::max(last_epoch, epoch);
    }
  }
  for (const auto& [epoch, of_epoch] : uses) {
    for (std::uint64_t sample = 0; sample < of_epoch.size(); ++sample) {
      const std::uint32_t count = of_epoch[sample];
      violations_.expect(count == 1 || (count == 0 && epoch == last_epoch), [&] {
        return "sample " + std::to_string(sample) + " is used " + std::to_string(count) +
               " times in epoch " + std::to_string(epoch);
      });
    }
  }
}

}  // namespace mayfly::sim
