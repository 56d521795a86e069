#include "planner/simulation/shocks.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/check.hpp"
#include "base/portable_math.hpp"
#include "base/time.hpp"

namespace mayfly::planner {

bool ShockModel::is_calm() const {
  return blocks.empty()
             ? per_hour <= 0 || share <= 0
             : std::ranges::all_of(blocks, [](const auto& block) { return block.empty(); });
}

ShockModel ShockModel::scaled(double factor) const {
  ShockModel more = *this;
  more.per_hour *= factor;
  for (std::vector<Shock>& block : more.blocks) {
    for (Shock& shock : block) {
      shock.share = std::min(1.0, shock.share * factor);
    }
  }
  return more;
}

double ShockModel::losses_per_s() const {
  if (blocks.empty()) {
    return per_hour * share / kSecondsPerHour;
  }
  double taken = 0;
  for (const std::vector<Shock>& block : blocks) {
    for (const Shock& shock : block) {
      taken += shock.share;
    }
  }
  return taken / (static_cast<double>(blocks.size()) * block_s);
}

ShockStream::ShockStream(const ShockModel& model, CounterRandom key) : model_(&model), key_(key) {
  if (!model.is_calm()) {
    next_.at_s = 0;
    next_.number = ~std::uint64_t{0};  // the first one becomes number 0
    pop();
  }
}

void ShockStream::pop() {
  ++next_.number;
  if (!model_->blocks.empty()) {
    pop_from_blocks();
    return;
  }
  next_.at_s += portable_log(1 / (1 - key_.unit(drawn_++))) * kSecondsPerHour / model_->per_hour;
  next_.share = model_->share;
}

void ShockStream::pop_from_blocks() {
  // Many blocks without a shock may follow each other; this limit is longer than any job.
  constexpr std::uint64_t kBlocksMax = 1'000'000;
  while (drawn_ < kBlocksMax) {
    if (drawn_ > 0 && in_block_ < model_->blocks[block_].size()) {
      const Shock& shock = model_->blocks[block_][in_block_++];
      next_.at_s = static_cast<double>(drawn_ - 1) * model_->block_s + shock.at_s;
      next_.share = shock.share;
      return;
    }
    block_ = key_.below(drawn_++, model_->blocks.size());
    in_block_ = 0;
  }
  next_.at_s = kNever;
}

std::vector<std::vector<Shock>> shock_blocks(const std::vector<TraceEvent>& trace, double block_s) {
  ENSURE(block_s > 0, "a block has a length");
  constexpr double kTogether = 1;
  const double begin = trace.empty() ? 0 : trace.front().at_s;
  const double length = trace.empty() ? 0 : trace.back().at_s - begin;
  std::vector<std::vector<Shock>> blocks(static_cast<std::size_t>(std::floor(length / block_s)));
  std::set<std::string> present;
  for (std::size_t i = 0; i < trace.size();) {
    const double at = trace[i].at_s;
    const std::set<std::string> before = present;
    std::size_t taken = 0;
    for (; i < trace.size() && trace[i].at_s < at + kTogether; ++i) {
      if (trace[i].is_added) {
        present.insert(trace[i].node);
      } else {
        taken += before.contains(trace[i].node) ? 1 : 0;
        present.erase(trace[i].node);
      }
    }
    const auto block = static_cast<std::size_t>((at - begin) / block_s);
    if (taken > 0 && block < blocks.size()) {
      blocks[block].push_back({at - begin - static_cast<double>(block) * block_s,
                               static_cast<double>(taken) / static_cast<double>(before.size())});
    }
  }
  return blocks;
}

}  // namespace mayfly::planner
