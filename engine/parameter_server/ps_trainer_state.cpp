#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.hpp"
#include "engine/parameter_server/ps_trainer.hpp"
#include "engine/parameter_server/sgd_shard.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/records.hpp"

// Part two of the trainer: what it does with the whole state, which only the shards have.

namespace mayfly::engine {
namespace {

constexpr Duration kWaitTurn = milliseconds(200);  // a last resort: every event wakes this thread
constexpr Duration kReportTimeout = seconds(60);
constexpr Duration kStateTimeout = seconds(60);  // without any part of a state

}  // namespace

Result<nn::ModelState> PsTrainer::fetch_state() {
  follow_rewind();
  for (std::size_t i = states_.size(); i < parts_.ps.ranges.size(); ++i) {
    states_.emplace_back(2 * (parts_.ps.ranges[i].last - parts_.ps.ranges[i].first));
  }
  clients_->pull_states();
  const Instant begun = monotonic_now();
  std::optional<std::vector<parameter_server::StateVersion>> versions;
  while (!(versions = clients_->states_arrived())) {
    const Duration silence = monotonic_now() - std::max(begun, clients_->state_received_at());
    if (silence > kStateTimeout) {
      return Error{Errc::kDeadline,
                   fmt::format("a parameter server has sent no part of it for {} s",
                               kStateTimeout / seconds(1))};
    }
    if (has_new_view_ && !has_leave_order()) {
      return Error{Errc::kAborted, "another view has begun, perhaps without a server"};
    }
    clients_->wait(monotonic_now() + kWaitTurn);
  }
  nn::ModelState state = blank_state();
  for (std::uint32_t shard = 0; shard < parts_.ps.shards; ++shard) {
    put_shard(state, parts_.layout, parts_.ps.ranges[shard], states_[shard].span());
  }
  const parameter_server::StateVersion first = versions->front();
  state.committed = Step{parts_.ps.plan.steps_before(first.slices)};
  fetched_version_ = first.version;
  // A job that was stopped within a step, because the step took longer than the coordinator waits,
  // gets no checkpoint of this state: resumed from it, the job would repeat or skip slices.
  if (!are_whole(*versions, parts_.ps.plan)) {
    return Error{Errc::kAborted, fmt::format("the parameter servers have only a part of step {}",
                                             value(next(state.committed)))};
  }
  return state;
}

/// The last checkpoint of a job that is being stopped, if the shards have whole steps.
void PsTrainer::save_last_state() {
  parts_.board.enter(elastic::Activity::kCheckpoint, Step{});
  const Result<nn::ModelState> state =
      clients_ != nullptr ? fetch_state()
                          : Error{Errc::kPeerLost, "this worker has reached no parameter server"};
  if (state.ok()) {
    parts_.checkpoints.write_now(state.value().committed, checkpoint_of(parts_.job, state.value()));
  } else {
    note("state_not_saved", "the job's last state is not saved: " + state.error().detail);
  }
}

void PsTrainer::snapshot(const flow::Snapshot& action) {
  const std::uint64_t step = parts_.ps.plan.steps_before(action.first);
  const bool is_last = step == parts_.job.total_steps;
  parts_.board.enter(elastic::Activity::kSync, Step{step});
  const Result<nn::ModelState> fetched = fetch_state();
  if (!fetched.ok()) {
    return;  // the flow will order the snapshot again
  }
  const nn::ModelState& state = fetched.value();
  ENSURE(value(state.committed) == step, "a snapshot is taken between two steps");
  const std::uint64_t every = parts_.job.evaluate_every_steps;
  if ((is_last && parts_.job.config.evaluate) || (every > 0 && step % every == 0)) {
    evaluate(state);
  }
  if (has_leave_order()) {
    return;  // another worker records this state, with the whole evaluation
  }
  parts_.client.send_report(encode_record(StateRecord{step, to_string(nn::digest_of(state))}));
  parts_.board.enter(elastic::Activity::kCheckpoint, Step{step});
  if (is_last) {
    parts_.checkpoints.write_now(state.committed, checkpoint_of(parts_.job, state));
    (void)parts_.checkpoints.wait_until_uploaded(kReportTimeout, [this, step] {
      parts_.board.enter(elastic::Activity::kCheckpoint,
                         Step{step});  // the upload may take minutes
      return has_leave_order();
    });
    if (const std::optional<elastic::View> view = link_.view()) {
      (void)elastic::wait_for_reports(parts_.client, view->id, monotonic_now() + kReportTimeout);
    }
  } else if (parts_.ps.checkpoints.contains(step)) {
    parts_.checkpoints.write_later(state.committed, checkpoint_of(parts_.job, state));
    saved_ = {fetched_version_, step};
  }
  recorded_ = state.committed;
  flow_.recorded();
}

void PsTrainer::evaluate(const nn::ModelState& state) {
  parts_.board.enter(elastic::Activity::kEvaluate, state.committed);
  std::vector<std::uint32_t> chunks(parts_.pool.test_chunks());
  std::iota(chunks.begin(), chunks.end(), 0);
  nn::ModelState weights = blank_state();
  std::ranges::copy(state.parameters.span(), weights.parameters.data());
  std::ranges::copy(state.statistics.span(), weights.statistics.data());
  weights.committed = Step{++adoptions_};
  parts_.pool.compute_with(weights);
  const EvaluationSums sums = parts_.pool.evaluate(chunks);
  parts_.pool.compute_with(held_);
  if (has_leave_order()) {
    return;  // the sums may cover only a part of the test set
  }
  if (const std::optional<Error> failure = parts_.pool.failure()) {
    fail(failure->detail);
    return;
  }
  const auto samples = static_cast<double>(sums.samples);
  parts_.client.send_report(encode_record(
      EvaluationRecord{value(state.committed), static_cast<double>(sums.correct) / samples,
                       sums.loss.total() / samples}));
}

}  // namespace mayfly::engine
