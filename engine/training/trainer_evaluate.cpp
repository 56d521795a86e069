// What the members do beside training: test accuracy now and then, and the end of the job.

#include <algorithm>
#include <array>
#include <cmath>

#include "elastic/net/report_barrier.hpp"
#include "engine/training/trainer.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kReportTimeout = seconds(60);

/// The chunks of the test set that the member of this rank evaluates; none if it lacks the state.
std::vector<std::uint32_t> chunks_of(const elastic::View& view, Rank rank, std::size_t count) {
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

}  // namespace

Result<void> Trainer::evaluate(const elastic::View& view, collectives::Group& group) {
  const TraceSpan traced = span("evaluate");
  turn_to(elastic::Activity::kEvaluate);
  const std::size_t size = parts_.job.config.microbatch;
  const std::size_t chunk_count = (parts_.job.data.test->size() + size - 1) / size;
  const std::vector<std::uint32_t> own = chunks_of(view, rank_, chunk_count);
  if (computing_ != Step{} && !parts_.pool.wait_for_step()) {  // sums kept from the view before
    TRY(check_pool());
    return Error{Errc::kAborted, "the view is over"};
  }
  const EvaluationSums sums = parts_.pool.evaluate(state_, own);
  TRY(check_pool());
  turn_to(elastic::Activity::kExchange);
  std::array<std::int64_t, 3> lanes = {sums.correct, sums.loss_fixed, sums.samples};
  if (Result<void> done =
          group.all_reduce_blocking(lanes.data(), lanes.size(), collectives::DataType::kInt64,
                                    collectives::ReduceOp::kSum, monotonic_now() + kStepTimeout);
      !done.ok()) {
    return done;
  }
  evaluated_ = position_;
  if (is_reporter_) {
    const double loss = std::ldexp(static_cast<double>(lanes[1]), -20);
    parts_.client.send_report(encode_record(EvaluationRecord{
        value(position_), static_cast<std::uint64_t>(lanes[2]),
        static_cast<std::uint64_t>(lanes[0]), loss / static_cast<double>(lanes[2])}));
  }
  return {};
}

/// The others wait in a barrier meanwhile. Without a coordinator not for ever: the reports are
/// kept.
Result<void> Trainer::wait_for_reports(const elastic::View& view) {
  turn_to(elastic::Activity::kIdle);
  const std::chrono::duration<double> configured(parts_.job.config.coordinator_timeout);
  const Duration patience =
      std::min(kReportTimeout, std::chrono::duration_cast<Duration>(configured));
  Result<void> taken;
  do {
    taken = elastic::wait_for_reports(parts_.client, view.id, monotonic_now() + patience);
  } while (taken.ok() && repeat_to_coordinator_that_was_away(view));
  if (!taken.ok() && taken.error().code == Errc::kDeadline) {
    return {};
  }
  return taken;
}

/// Who trains may be taken away as soon as it has finished, with all that is on its disk. What the
/// coordinator cannot take it says itself.
Result<void> Trainer::bring_home(const elastic::View& view) {
  const Result<void> home = parts_.checkpoints.wait_until_home(
      kReportTimeout, [&] { return parts_.link.is_over(view.id); });
  return !home.ok() && home.error().code == Errc::kAborted ? home : Result<void>();
}

Result<void> Trainer::finish_job(const elastic::View& view, collectives::Group& group) {
  if (parts_.job.config.evaluate) {
    TRY(evaluate(view, group));
  }
  turn_to(elastic::Activity::kExchange);
  TRY(compare_last_state(group, monotonic_now() + kStepTimeout));
  if (is_reporter_) {
    turn_to(elastic::Activity::kCheckpoint);
    parts_.checkpoints.write_now(state_here());
    TRY(bring_home(view));
    TRY(wait_for_reports(view));
  }
  turn_to(elastic::Activity::kExchange);
  // Nobody reports "finished" before the results are on record: if the reporter dies here, the next
  // view repeats this part.
  return group.barrier()->wait(monotonic_now() + kStepTimeout);
}

}  // namespace mayfly::engine
