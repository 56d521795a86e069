#include "collectives/parameter_server/pushed_gradients.hpp"

#include <utility>

#include "base/check.hpp"

namespace mayfly::parameter_server {

PushedSum PushedGradients::space() {
  if (spare_.empty()) {
    return {AlignedBuffer<float>(floats_), {}};
  }
  PushedSum space{std::move(spare_.back()), {}};
  spare_.pop_back();
  return space;
}

void PushedGradients::recycle(PushedSum sum) {
  if (sum.own.size() > 0) {
    spare_.push_back(std::move(sum.own));
  }
}

std::span<const float> PushedGradients::keep(PushedSum sum, const Header& push,
                                             std::uint64_t entry) {
  const auto [place, is_new] =
      kept_.try_emplace(push.slice, Kept{std::move(sum), push, entry, false});
  ENSURE(is_new, "a slice is kept once");
  return place->second.sum.span();
}

PushedGradients::Sums PushedGradients::apply(const Update& update) {
  Sums sums;
  sums.facts.update = update;
  for (const std::uint64_t slice : update.slices) {
    Kept& kept = kept_.at(slice);
    kept.is_applied = true;
    sums.slices.push_back({kept.sum.span(), kept.push.count});
    sums.facts.samples += kept.push.samples;
    sums.facts.correct += kept.push.correct;
    sums.facts.microbatches += kept.push.count;
    sums.facts.loss += kept.push.loss;
    for (std::size_t lane = 0; lane < sums.facts.sample_hash.size(); ++lane) {
      sums.facts.sample_hash[lane] += kept.push.sample_hash[lane];
    }
  }
  return sums;
}

void PushedGradients::release(std::uint64_t through) {
  for (auto place = kept_.begin(); place != kept_.end();) {
    Kept& kept = place->second;
    if (kept.is_applied && kept.entry <= through) {
      recycle(std::move(kept.sum));
      place = kept_.erase(place);
    } else {
      ++place;
    }
  }
}

}  // namespace mayfly::parameter_server
