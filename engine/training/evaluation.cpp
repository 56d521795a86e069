#include "engine/training/evaluation.hpp"

#include <algorithm>

namespace mayfly::engine {

std::vector<std::uint32_t> evaluation_chunks(const elastic::View& view, Rank rank,
                                             std::size_t count) {
  std::vector<std::size_t> workers;
  for (std::size_t r = 0; r < view.members.size(); ++r) {
    if (!view.members[r].is_observer()) {
      workers.push_back(r);
    }
  }
  const auto place = std::find(workers.begin(), workers.end(), value(rank));
  std::vector<std::uint32_t> own;
  for (auto c = static_cast<std::size_t>(place - workers.begin());
       place != workers.end() && c < count; c += workers.size()) {
    own.push_back(static_cast<std::uint32_t>(c));
  }
  return own;
}

Result<EvaluationSums> sum_of_members(collectives::Group& group, const EvaluationSums& own,
                                      Instant deadline) {
  std::vector<std::int64_t> lanes = {own.correct, own.samples, own.loss.whole, own.loss.fraction,
                                     own.loss.misfits};
  for (const OrderlessSum& sum : own.own) {
    lanes.insert(lanes.end(), {sum.whole, sum.fraction, sum.misfits});
  }
  TRY(group.all_reduce_blocking(lanes.data(), lanes.size(), collectives::DataType::kInt64,
                                collectives::ReduceOp::kSum, deadline));
  EvaluationSums all{lanes[0], lanes[1], {lanes[2], lanes[3], lanes[4]}, {}};
  for (std::size_t lane = 5; lane < lanes.size(); lane += 3) {
    all.own.push_back({lanes[lane], lanes[lane + 1], lanes[lane + 2]});
  }
  return all;
}

}  // namespace mayfly::engine
