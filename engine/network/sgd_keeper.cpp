#include "engine/network/sgd_keeper.hpp"

#include <utility>

#include "engine/run/checkpoint_store.hpp"

namespace mayfly::engine {
namespace {

std::uint32_t whole_check(const nn::ModelState& state) {
  return static_cast<std::uint32_t>(
      StateParts::joined(StateParts::rest_hash(state), StateParts::turn_hash(state)));
}

nn::ModelState blank_like(const nn::ModelState& like) {
  nn::ModelState state;
  state.parameters = AlignedBuffer<float>(like.parameters.size());
  state.momentum = AlignedBuffer<float>(like.momentum.size());
  state.statistics = AlignedBuffer<float>(like.statistics.size());
  state.exponents.resize(like.exponents.size());
  state.loss_scale = like.loss_scale;
  return state;
}

}  // namespace

class SgdKeeper::Observed final : public ObservedState {
 public:
  explicit Observed(SgdKeeper& keeper) : keeper_(keeper), state_(blank_like(keeper.state_)) {}

  [[nodiscard]] Result<void> unpack(ByteSpan packed) override {
    return nn::unpack_state(packed, state_);
  }
  [[nodiscard]] Step committed() const override { return state_.committed; }
  [[nodiscard]] std::uint32_t check() const override { return whole_check(state_); }
  void apply(const ObservedStep& step) override { keeper_.committer_.apply(step, state_); }
  void hand_over() override {
    keeper_.state_ = std::move(state_);
    keeper_.host_copy_.replaced();
  }

 private:
  SgdKeeper& keeper_;
  nn::ModelState state_;
};

SgdKeeper::SgdKeeper(const Job& job, const ReductionLayout& layout, ComputePool& pool,
                     nn::ModelState initial)
    : job_(job),
      pool_(pool),
      state_(std::move(initial)),
      host_copy_(state_, pool),
      committer_(job, layout),
      parts_(job.model) {
  pool_.compute_with(state_);
  host_copy_.replaced();
}

const nn::ModelState& SgdKeeper::whole() {
  host_copy_.bring_all();
  return state_;
}

void SgdKeeper::draw_weights() {
  nn::draw_weights(job_.model, job_.config.seed, state_);
}

double SgdKeeper::apply(const GradientBuckets& reduced, std::span<const std::int32_t> exponents,
                        bool skips) {
  if (skips) {
    host_copy_.step_kept();
    return committer_.skip(reduced, exponents, pool_, state_);
  }
  const double loss = committer_.commit(reduced, exponents, pool_, state_);
  if (is_on_device()) {
    host_copy_.leave_behind();
  }
  return loss;
}

Result<void> SgdKeeper::unpack(ByteSpan packed) {
  TRY(nn::unpack_state(packed, state_));
  host_copy_.replaced();
  return {};
}

std::unique_ptr<ObservedState> SgdKeeper::make_observed() {
  return std::make_unique<Observed>(*this);
}

nn::CheckpointFiles SgdKeeper::checkpoint() {
  return checkpoint_of(job_, whole());
}

void SgdKeeper::spoil(StateFaults& faults) {
  if (faults.due(state_.committed)) {
    host_copy_.bring_all();
    faults.after_commit(state_);
    host_copy_.replaced();
  }
}

nn::ModelState SgdKeeper::take() {
  host_copy_.bring_all();
  return std::move(state_);
}

std::uint64_t SgdKeeper::rest_hash() {
  return StateParts::rest_hash(whole());
}

std::uint32_t SgdKeeper::check(std::optional<std::uint64_t> rest) {
  host_copy_.bring_turn();
  const std::uint64_t turn = StateParts::turn_hash(state_);
  return static_cast<std::uint32_t>(rest ? StateParts::joined(*rest, turn) : turn);
}

Digest SgdKeeper::digest() {
  return nn::digest_of(whole());
}

std::vector<std::uint64_t> SgdKeeper::part_hashes() {
  return parts_.hashes(whole());
}

}  // namespace mayfly::engine
