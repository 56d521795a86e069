// What a worker does when the whole state is to be recorded: fetch it from the shards, evaluate it,
// write it.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.hpp"
#include "elastic/net/report_barrier.hpp"
#include "engine/parameter_server/ps_trainer.hpp"
#include "engine/parameter_server/sgd_shard.hpp"
#include "engine/run/records.hpp"

namespace mayfly::engine {
namespace {

namespace flow = parameter_server::flow;

constexpr Duration kSnapshotTurn =
    milliseconds(200);  // a backstop: everything that happens wakes us
constexpr Duration kReportTimeout = seconds(60);
constexpr Duration kStateTimeout = seconds(60);

}  // namespace

std::optional<nn::ModelState> PsTrainer::fetch_state() {
  follow_rewind();
  states_.clear();
  for (const ShardRange& range : parts_.ps.ranges) {
    states_.emplace_back(2 * (range.last - range.first));
  }
  clients_->pull_states();
  const Instant deadline = monotonic_now() + kStateTimeout;
  std::optional<std::vector<parameter_server::StateVersion>> versions;
  while (!(versions = clients_->states_arrived())) {
    const bool gives_up = monotonic_now() > deadline || (view_came_ && !is_told_to_leave());
    if (gives_up) {
      return std::nullopt;  // a shard may be gone: the view says
    }
    clients_->wait(monotonic_now() + kSnapshotTurn);
  }
  nn::ModelState state = blank_state();
  for (std::uint32_t shard = 0; shard < parts_.ps.shards; ++shard) {
    const ShardRange range = parts_.ps.ranges[shard];
    const ShardValues values = values_in(state, parts_.layout, range);
    const std::span<const float> all = states_[shard].span();
    const std::size_t statistics = values.statistics.size();
    std::ranges::copy(all.first(statistics), values.statistics.begin());
    std::ranges::copy(all.subspan(statistics, values.parameters.size()), values.parameters.begin());
    if (!values.parameters.empty()) {
      const std::size_t first =
          static_cast<std::size_t>(values.parameters.data() - state.parameters.data());
      std::ranges::copy(
          all.subspan(range.last - range.first + statistics, values.parameters.size()),
          state.momentum.data() + first);
    }
  }
  const parameter_server::StateVersion first = versions->front();
  state.committed = Step{parts_.ps.plan.steps_before(first.slices)};
  fetched_version_ = first.version;
  const bool is_one_version = std::all_of(versions->begin(), versions->end(),
                                          [&](const auto& version) { return version == first; });
  // A job that is stopped in the middle of a step - one that takes longer than the coordinator
  // waits - has no checkpoint of this moment: resumed, it would repeat the step's first slices.
  const bool is_whole = is_one_version && parts_.ps.plan.is_border(first.slices);
  return is_whole ? std::optional(std::move(state)) : std::nullopt;
}

void PsTrainer::snapshot(const flow::Snapshot& action) {
  const std::uint64_t step = parts_.ps.plan.steps_before(action.first);
  const bool is_last = step == parts_.job.total_steps;
  parts_.board.enter(elastic::Activity::kSync, Step{step});
  std::optional<nn::ModelState> state = fetch_state();
  if (!state) {
    return;  // the flow asks again
  }
  ENSURE(value(state->committed) == step, "a snapshot is taken between two steps");
  const JobConfig& config = parts_.job.config;
  const std::uint64_t every = parts_.job.evaluate_every_steps;
  if ((is_last && config.evaluate) || (every > 0 && step % every == 0)) {
    evaluate(*state);
  }
  parts_.client.send_report(encode_record(StateRecord{step, to_string(nn::digest_of(*state))}));
  parts_.board.enter(elastic::Activity::kCheckpoint, Step{step});
  if (is_last) {
    parts_.checkpoints.write_now(*state);
    (void)parts_.checkpoints.wait_until_home(kReportTimeout, [this] { return is_told_to_leave(); });
    if (const std::optional<elastic::View> view = link_.view()) {
      (void)elastic::wait_for_reports(parts_.client, view->id, monotonic_now() + kReportTimeout);
    }
  } else if (parts_.ps.checkpoints.contains(step)) {
    parts_.checkpoints.write_later(*state);
  }
  recorded_ = state->committed;
  recorded_version_ = fetched_version_;
  flow_.recorded();
}

void PsTrainer::evaluate(const nn::ModelState& state) {
  parts_.board.enter(elastic::Activity::kEvaluate, state.committed);
  const std::size_t size = parts_.job.config.microbatch;
  std::vector<std::uint32_t> chunks((parts_.job.data.test->size() + size - 1) / size);
  std::iota(chunks.begin(), chunks.end(), 0);
  nn::ModelState weights = blank_state();
  std::ranges::copy(state.parameters.span(), weights.parameters.data());
  std::ranges::copy(state.statistics.span(), weights.statistics.data());
  weights.committed = Step{++adoptions_};
  const EvaluationSums sums = parts_.pool.evaluate(weights, chunks);
  if (const std::optional<Error> failure = parts_.pool.failure()) {
    fail(failure->detail);
    return;
  }
  const double loss = std::ldexp(static_cast<double>(sums.loss_fixed), -20);
  parts_.client.send_report(encode_record(EvaluationRecord{
      value(state.committed), static_cast<std::uint64_t>(sums.samples),
      static_cast<std::uint64_t>(sums.correct), loss / static_cast<double>(sums.samples)}));
}

}  // namespace mayfly::engine
