#include "engine/training/state_keeper.hpp"

#include <utility>

namespace mayfly::engine {

StateKeeper::StateKeeper(const Job& job, const ReductionLayout& layout, ComputePool& pool,
                         nn::ModelState initial)
    : job_(job),
      pool_(pool),
      state_(std::move(initial)),
      host_copy_(state_, pool),
      committer_(job, layout),
      parts_(job.model) {
  host_copy_.replaced();
}

const nn::ModelState& StateKeeper::whole() {
  host_copy_.bring_all();
  return state_;
}

void StateKeeper::draw_weights() {
  nn::draw_weights(job_.model, job_.config.seed, state_);
}

double StateKeeper::apply(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
                          bool skips) {
  if (skips) {
    host_copy_.step_kept();
    return committer_.skip(reduced, exponents, pool_, state_);
  }
  const double loss = committer_.commit(reduced, exponents, pool_, state_);
  if (pool_.updates_on_device()) {
    host_copy_.leave_behind();
  }
  return loss;
}

void StateKeeper::replace(nn::ModelState&& state) {
  state_ = std::move(state);
  host_copy_.replaced();
}

Result<void> StateKeeper::unpack(ByteSpan packed) {
  TRY(nn::unpack_state(packed, state_));
  host_copy_.replaced();
  return {};
}

void StateKeeper::spoil(StateFaults& faults) {
  host_copy_.bring_all();
  faults.after_commit(state_);
  host_copy_.replaced();
}

nn::ModelState StateKeeper::take() {
  host_copy_.bring_all();
  return std::move(state_);
}

std::uint64_t StateKeeper::rest_hash() {
  return StateParts::rest_hash(whole());
}

std::uint32_t StateKeeper::check(std::optional<std::uint64_t> rest) {
  host_copy_.bring_turn();
  const std::uint64_t turn = StateParts::turn_hash(state_);
  return static_cast<std::uint32_t>(rest ? StateParts::joined(*rest, turn) : turn);
}

Digest StateKeeper::digest() {
  return nn::digest_of(whole());
}

std::vector<std::uint64_t> StateKeeper::part_hashes() {
  return parts_.hashes(whole());
}

}  // namespace mayfly::engine
