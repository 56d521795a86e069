#include "engine/state/state_parts.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/faults/chaos_plan.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kExponents = 7;

nn::Model model() {
  return nn::make_model("resnet20", 10, 32).value();
}

nn::ModelState state_of(const nn::Model& model) {
  nn::ModelState state = nn::make_initial_state(model, 1, kExponents, 0);
  for (std::size_t i = 0; i < state.momentum.span().size(); ++i) {
    state.momentum.span()[i] = static_cast<float>(i % 100) + 1;
  }
  return state;
}

/// After how many steps the hashes of two states that are not updated differ; -1 = never.
int found_after(nn::ModelState& one, nn::ModelState& other) {
  for (int steps = 0; steps < static_cast<int>(StateParts::kRounds); ++steps) {
    one.committed = other.committed = Step{static_cast<std::uint64_t>(40 + steps)};
    if (StateParts::turn_hash(one) != StateParts::turn_hash(other)) {
      return steps;
    }
  }
  return -1;
}

TEST(StateParts, EqualStatesHaveEqualHashes) {
  const nn::Model net = model();
  nn::ModelState one = state_of(net);
  nn::ModelState other = state_of(net);
  EXPECT_EQ(StateParts(net).hashes(one), StateParts(net).hashes(other));
  EXPECT_EQ(found_after(one, other), -1);
}

TEST(StateParts, WrongWeightsAndExponentsAreFoundAtOnce) {
  const nn::Model net = model();
  nn::ModelState one = state_of(net);
  for (const std::size_t at : {std::size_t{0}, net.parameter_count / 2, net.parameter_count - 1}) {
    nn::ModelState other = state_of(net);
    other.parameters.span()[at] += 1;
    EXPECT_EQ(found_after(one, other), 0);
  }
  nn::ModelState other = state_of(net);
  other.exponents.back() = 3;
  EXPECT_EQ(found_after(one, other), 0);
}

TEST(StateParts, AWrongLossScaleIsFoundAtOnce) {
  const nn::Model net = model();
  nn::ModelState one = state_of(net);
  nn::ModelState other = state_of(net);
  one.loss_scale = nn::LossScale{16, 3};
  for (const nn::LossScale& wrong : {nn::LossScale{15, 3}, nn::LossScale{16, 4}}) {
    other.loss_scale = wrong;
    EXPECT_EQ(found_after(one, other), 0);
    EXPECT_NE(StateParts(net).hashes(one).back(), StateParts(net).hashes(other).back());
  }
  other.loss_scale = one.loss_scale;
  EXPECT_EQ(found_after(one, other), -1);
}

TEST(StateParts, AnyOtherWrongNumberIsFoundWithinTheRounds) {
  const nn::Model net = model();
  nn::ModelState one = state_of(net);
  for (std::size_t at = 0; at < net.parameter_count; at += 9973) {
    nn::ModelState other = state_of(net);
    other.momentum.span()[at] += 1;
    EXPECT_GE(found_after(one, other), 0) << at;
  }
  for (std::size_t at = 0; at < net.statistic_count; at += 101) {
    nn::ModelState other = state_of(net);
    other.statistics.span()[at] += 1;
    EXPECT_GE(found_after(one, other), 0) << at;
  }
}

TEST(StateParts, ComparedAsAWholeAnyWrongNumberIsFoundAtOnce) {
  const nn::Model net = model();
  const auto whole = [](const nn::ModelState& state) {
    return StateParts::joined(StateParts::rest_hash(state), StateParts::turn_hash(state));
  };
  nn::ModelState state = state_of(net);
  const std::uint64_t right = whole(state);
  for (const auto numbers :
       {state.parameters.span(), state.momentum.span(), state.statistics.span()}) {
    for (std::size_t at = 0; at < numbers.size(); at += numbers.size() / 29) {
      numbers[at] += 1;
      EXPECT_NE(whole(state), right) << at;
      numbers[at] -= 1;
    }
  }
  state.committed = next(state.committed);
  EXPECT_NE(whole(state), right);
}

TEST(StateParts, WhatIsNeededOfTheMomentumForAHashIsTheSliceOfItsTurn) {
  const nn::Model net = model();
  const nn::ModelState whole = state_of(net);
  std::size_t covered = 0;
  for (std::uint64_t step = 100; step < 100 + StateParts::kRounds; ++step) {
    nn::ModelState partial = state_of(net);
    std::ranges::fill(partial.momentum.span(), -1.0F);
    const StateParts::Slice slice = StateParts::turn_slice(net.parameter_count, Step{step});
    const auto from = whole.momentum.span().subspan(slice.first, slice.count);
    std::ranges::copy(from, partial.momentum.span().subspan(slice.first).begin());
    nn::ModelState right = state_of(net);
    right.committed = partial.committed = Step{step};
    EXPECT_EQ(StateParts::turn_hash(partial), StateParts::turn_hash(right)) << step;
    covered += slice.count;
  }
  EXPECT_EQ(covered, net.parameter_count);
}

TEST(StateParts, TheDifferingPartIsNamed) {
  const nn::Model net = model();
  const StateParts parts(net);
  nn::ModelState one = state_of(net);
  one.loss_scale = nn::LossScale{};
  nn::ModelState other = state_of(net);
  other.loss_scale = one.loss_scale;
  other.momentum.span()[net.parameters[3].offset] += 1;
  const auto right = parts.hashes(one);
  const auto wrong = parts.hashes(other);
  ASSERT_EQ(right.size(), parts.names().size());
  for (std::size_t i = 0; i < right.size(); ++i) {
    EXPECT_EQ(right[i] == wrong[i], parts.names()[i] != net.parameters[3].name + " (momentum)");
  }
}

TEST(StateFaults, FlipOneBitEachOnceWhenTheirStepHasCome) {
  const nn::Model net = model();
  nn::ModelState state = state_of(net);
  const nn::ModelState before = state_of(net);
  StateFaults faults(parse_chaos_plan("flip_weights@step=2,flip_statistics@step=3").value());
  const StateParts parts(net);
  const auto changed = [&] {
    const auto now = parts.hashes(state);
    const auto then = parts.hashes(before);
    int count = 0;
    for (std::size_t i = 0; i < now.size(); ++i) {
      count += now[i] == then[i] ? 0 : 1;
    }
    return count;
  };
  EXPECT_FALSE(faults.due(Step{1}));
  EXPECT_TRUE(faults.due(Step{2}));
  state.committed = Step{1};
  faults.after_commit(state);
  EXPECT_EQ(changed(), 0);
  state.committed = Step{2};
  faults.after_commit(state);
  EXPECT_EQ(changed(), 1);
  state.committed = Step{3};
  faults.after_commit(state);
  EXPECT_EQ(changed(), 2);
  EXPECT_FALSE(faults.due(Step{4})) << "each once";
  faults.after_commit(state);
  EXPECT_EQ(changed(), 2);
}

}  // namespace
}  // namespace mayfly::engine
