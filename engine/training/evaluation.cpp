#include "engine/training/evaluation.hpp"

#include <algorithm>
#include <array>

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
  std::array<std::int64_t, 3> lanes = {own.correct, own.loss_fixed, own.samples};
  TRY(group.all_reduce_blocking(lanes.data(), lanes.size(), collectives::DataType::kInt64,
                                collectives::ReduceOp::kSum, deadline));
  return EvaluationSums{lanes[0], lanes[1], lanes[2]};
}

}  // namespace mayfly::engine
