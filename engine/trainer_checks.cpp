// How the trainer makes sure that all members have the same state, and what it says if not.

#include <fmt/format.h>

#include <array>
#include <cstdint>

#include "engine/trainer.hpp"

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

/// At some steps, of the whole state: it takes long, so it is done while microbatches are computed.
std::optional<std::uint64_t> Trainer::whole_state() const {
  // Members share the view and the step, so they all take the same branch.
  const bool whole =
      first_step_of_view_ || is_digest_step(position_) || is_checkpoint_step(position_);
  return whole && !observes_ ? std::optional(nn::digest_of(state_).low) : std::nullopt;
}

/// After the microbatches are computed: the weights were right all the while.
std::optional<std::uint32_t> Trainer::state_check(std::optional<std::uint64_t> whole) const {
  if (observes_) {
    return std::nullopt;
  }
  const std::uint64_t turn = StateParts::turn_hash(state_);
  return static_cast<std::uint32_t>(whole ? StateParts::joined(*whole, turn) : turn);
}

/// The members agree on the state that the present step starts from.
void Trainer::states_agreed() {
  if (observes_ || !is_checkpoint_step(state_.committed) || saved_ == state_.committed) {
    return;
  }
  saved_ = state_.committed;
  if (speaks_) {
    parts_.checkpoints.write_later(state_);
  }
}

/// The last state: no reduction follows that would compare it.
Result<void> Trainer::compare_last_state(collectives::Group& group, Instant deadline) {
  std::array<std::int32_t, 2> lanes = {INT32_MIN, INT32_MIN};  // an observer has nothing to say
  if (!observes_) {
    const auto check = static_cast<std::int32_t>(nn::digest_of(state_).low & 0x7fffffffU);
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
  if (!observes_) {
    dispute_ = elastic::Dispute::kState;
    disputed_ = state_parts_.hashes(state_);
  }
  return {Errc::kDiverged,
          fmt::format("the members' states differ before step {}", value(next(position_)))};
}

}  // namespace mayfly::engine
