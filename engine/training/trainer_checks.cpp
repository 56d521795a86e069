// How the trainer makes sure that all members have the same state and compute the same, and what it
// says if not.

#include <fmt/format.h>

#include <array>
#include <cstdint>

#include "engine/training/audit.hpp"
#include "engine/training/trainer.hpp"

namespace mayfly::engine {

bool Trainer::is_digest_step(Step step) const {
  const std::uint64_t every = parts_.job.config.digest_every;
  return value(step) == parts_.job.total_steps || (every > 0 && value(step) % every == 0);
}

bool Trainer::is_checkpoint_step(Step step) const {
  const std::uint64_t every = parts_.job.config.checkpoint_every;
  return every > 0 && step != Step{} && value(step) % every == 0 &&
         value(step) < parts_.job.total_steps;
}

/// At some steps the whole state is compared. What the check behind the microbatches leaves out
/// takes long, so it is looked at while they are computed.
std::optional<std::uint64_t> Trainer::rest_of_state() {
  // Members share the view and the step, so they all take the same branch.
  const bool whole =
      first_step_of_view_ || is_digest_step(position_) || is_checkpoint_step(position_);
  return whole && !observes_ ? std::optional(StateParts::rest_hash(state_here())) : std::nullopt;
}

/// After the microbatches are computed: the weights were right all the while. Those on a device are
/// looked at while it computes, because they have to be fetched first.
std::optional<std::uint32_t> Trainer::state_check(std::optional<std::uint64_t> rest) {
  if (observes_) {
    return std::nullopt;
  }
  host_copy_.bring_turn();
  const std::uint64_t turn = StateParts::turn_hash(state_);
  return static_cast<std::uint32_t>(rest ? StateParts::joined(*rest, turn) : turn);
}

/// The reporter alone decides, at a step at which the whole state is compared anyway.
bool Trainer::is_checkpoint_due() const {
  const double minutes = parts_.job.config.checkpoint_minutes;
  const bool is_old = minutes > 0 && monotonic_now() - saved_at_ >=
                                         Duration(static_cast<std::int64_t>(minutes * 60e9));
  return is_old && is_reporter_ && state_.committed != Step{} && is_digest_step(state_.committed);
}

/// The members agree on the state that the present step starts from.
void Trainer::states_agreed() {
  const bool is_wanted = is_checkpoint_step(state_.committed) || is_checkpoint_due();
  if (observes_ || !is_wanted || saved_ == state_.committed) {
    return;
  }
  saved_ = state_.committed;
  saved_at_ = monotonic_now();
  if (is_reporter_) {
    parts_.checkpoints.write_later(state_here());
  }
}

/// The last state: no reduction follows that would compare it.
Result<void> Trainer::compare_last_state(collectives::Group& group, Instant deadline) {
  std::array<std::int32_t, 2> lanes = {INT32_MIN, INT32_MIN};  // an observer has nothing to say
  if (!observes_) {
    const auto check = static_cast<std::int32_t>(nn::digest_of(state_here()).low & 0x7fffffffU);
    lanes = {check, -check};
  }
  if (Result<void> done =
          group.all_reduce_blocking(lanes.data(), lanes.size(), collectives::DataType::kInt32,
                                    collectives::ReduceOp::kMax, deadline);
      !done.ok()) {
    return done;
  }
  return lanes[0] == -lanes[1] ? Result<void>() : Result<void>(states_differ());
}

/// Says what this member has; the coordinator finds out who is wrong.
Error Trainer::states_differ() {
  dispute_ = elastic::Dispute::kState;
  if (!observes_) {
    disputed_ = state_parts_.hashes(state_here());
  }
  return {Errc::kDiverged,
          fmt::format("the members' states differ before step {}", value(next(position_)))};
}

std::optional<std::uint32_t> Trainer::audited() const {
  const Job& job = parts_.job;
  return audited_microbatch(computing_, job.config.audit_every, job.config.seed, job.microbatches);
}

/// What this member got for the audited microbatch, if it is its own or its turn to look.
std::optional<std::uint32_t> Trainer::audit_check(const elastic::View& view) {
  const std::optional<std::uint32_t> microbatch = audited();
  audited_hash_.reset();
  if (!microbatch.has_value()) {
    return std::nullopt;
  }
  audited_hash_ = parts_.pool.audited_hash();
  if (!audited_hash_ && auditor_of(view, *microbatch, computing_, first_step_of_view_) == rank_) {
    const TraceSpan traced = span("audit", {"microbatch", *microbatch});
    turn_to(elastic::Activity::kCompute);
    if (parts_.pool.wait_for_step()) {
      audited_hash_ = parts_.pool.recompute(*microbatch);
    }
  }
  return audited_hash_ ? std::optional(static_cast<std::uint32_t>(*audited_hash_)) : std::nullopt;
}

/// Everybody computes it (again) and says what it got; the coordinator finds out who is wrong.
Error Trainer::results_differ() {
  const std::optional<std::uint32_t> microbatch = audited();
  if (observes_) {
    dispute_ = elastic::Dispute::kMicrobatch;
  } else if (microbatch.has_value()) {
    turn_to(elastic::Activity::kCompute);
    const std::optional<std::uint64_t> hash = parts_.pool.recompute(*microbatch);
    if (hash.has_value()) {
      dispute_ = elastic::Dispute::kMicrobatch;
      disputed_ = {*hash};
      is_unsound_ = audited_hash_.has_value() && audited_hash_ != hash;
    }
  }
  return {Errc::kDiverged, fmt::format("two members get different results for microbatch {} of "
                                       "step {}",
                                       microbatch.value_or(0), value(computing_))};
}

}  // namespace mayfly::engine
