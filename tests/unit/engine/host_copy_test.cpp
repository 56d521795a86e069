#include "engine/network/host_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/check.hpp"
#include "engine/state/state_parts.hpp"

// The device of these tests consists of two arrays, and records what is fetched from it.

namespace mayfly::engine {
namespace {

constexpr std::size_t kElements = 1'000;

struct Fetch {
  nn::DevicePart part{};
  std::size_t first = 0;
  std::size_t count = 0;
  bool operator==(const Fetch&) const = default;
};

class ScriptedDevice final : public StateOnDevice {
 public:
  void fetch(nn::DevicePart part, std::size_t first, std::span<float> to) override {
    const std::vector<float>& from = part == nn::DevicePart::kParameters ? parameters : momentum;
    ENSURE(first + to.size() <= from.size(), "a part of what is there");
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(first), to.size(), to.begin());
    fetched.push_back({part, first, to.size()});
  }
  void state_replaced() override { ++replaced; }

  std::vector<float> parameters = std::vector<float>(kElements);
  std::vector<float> momentum = std::vector<float>(kElements);
  std::vector<Fetch> fetched;
  int replaced = 0;
};

nn::ModelState state_of(float value, Step committed) {
  nn::ModelState state;
  state.parameters = AlignedBuffer<float>(kElements);
  state.momentum = AlignedBuffer<float>(kElements);
  std::ranges::fill(state.parameters.span(), value);
  std::ranges::fill(state.momentum.span(), -value);
  state.committed = committed;
  return state;
}

class HostCopyTest : public ::testing::Test {
 protected:
  /// Commits a step as the trainer does, after the device has made its update.
  void commit() {
    state.committed = next(state.committed);
    const auto step = static_cast<float>(value(state.committed));
    std::iota(device.parameters.begin(), device.parameters.end(), 1'000 * step);
    std::iota(device.momentum.begin(), device.momentum.end(), -1'000 * step);
    copy.leave_behind();
  }

  [[nodiscard]] Fetch turn() const {
    const StateParts::Slice slice = StateParts::turn_slice(kElements, state.committed);
    return {nn::DevicePart::kMomentum, slice.first, slice.count};
  }

  [[nodiscard]] bool is_whole() const {
    return std::ranges::equal(state.parameters.span(), device.parameters) &&
           std::ranges::equal(state.momentum.span(), device.momentum);
  }

  nn::ModelState state = state_of(7, Step{0});
  ScriptedDevice device;
  HostCopy copy{state, device};
  const Fetch all_parameters{nn::DevicePart::kParameters, 0, kElements};
  const Fetch all_momentum{nn::DevicePart::kMomentum, 0, kElements};
};

TEST_F(HostCopyTest, NothingIsFetchedBeforeTheDeviceHasUpdated) {
  copy.bring_turn();
  copy.bring_all();
  EXPECT_TRUE(device.fetched.empty());
  EXPECT_EQ(state.parameters[0], 7);
}

TEST_F(HostCopyTest, AnUpdateFetchesNothingUntilSomebodyReads) {
  commit();
  EXPECT_TRUE(device.fetched.empty());
  EXPECT_EQ(state.parameters[0], 7) << "the copy is a step behind";
  EXPECT_EQ(state.momentum[0], -7);
}

TEST_F(HostCopyTest, TheCheckOfAStepFetchesWeightsAndTheSliceWhoseTurnItIs) {
  commit();
  copy.bring_turn();
  EXPECT_EQ(device.fetched, (std::vector<Fetch>{all_parameters, turn()}));
  EXPECT_TRUE(std::ranges::equal(state.parameters.span(), device.parameters));
  const Fetch slice = turn();
  for (std::size_t i = 0; i < kElements; ++i) {
    const bool is_here = i >= slice.first && i < slice.first + slice.count;
    EXPECT_EQ(state.momentum[i], is_here ? device.momentum[i] : -7) << i;
  }
}

TEST_F(HostCopyTest, WhatTheCheckReadsIsThatOfTheDeviceInEveryRound) {
  for (std::uint64_t i = 0; i < 2 * StateParts::kRounds; ++i) {
    commit();
    copy.bring_turn();
    nn::ModelState right = state_of(0, state.committed);
    std::ranges::copy(device.parameters, right.parameters.span().begin());
    std::ranges::copy(device.momentum, right.momentum.span().begin());
    EXPECT_EQ(StateParts::turn_hash(state), StateParts::turn_hash(right)) << i;
  }
}

TEST_F(HostCopyTest, AStepThatIsReducedAgainFetchesNothingAgain) {
  commit();
  copy.bring_turn();
  copy.bring_turn();
  EXPECT_EQ(device.fetched.size(), 2U);
}

TEST_F(HostCopyTest, AfterAStepWithoutAnUpdateTheNextSliceIsFetchedAndNothingElse) {
  commit();
  copy.bring_turn();
  device.fetched.clear();
  state.committed = next(state.committed);
  copy.step_kept();
  copy.bring_turn();
  EXPECT_EQ(device.fetched, std::vector<Fetch>{turn()});
  copy.bring_all();
  EXPECT_TRUE(is_whole());
  device.fetched.clear();
  state.committed = next(state.committed);
  copy.step_kept();
  copy.bring_turn();
  EXPECT_TRUE(device.fetched.empty()) << "all of it is here";
}

TEST_F(HostCopyTest, WhoReadsTheStateGetsAllOfItOnce) {
  commit();
  copy.bring_all();
  EXPECT_EQ(device.fetched, (std::vector<Fetch>{all_parameters, all_momentum}));
  EXPECT_TRUE(is_whole());
  copy.bring_turn();
  copy.bring_all();
  EXPECT_EQ(device.fetched.size(), 2U);
}

TEST_F(HostCopyTest, AfterTheCheckOnlyMomentumIsMissing) {
  commit();
  copy.bring_turn();
  device.fetched.clear();
  copy.bring_all();
  EXPECT_EQ(device.fetched, std::vector<Fetch>{all_momentum});
  EXPECT_TRUE(is_whole());
}

TEST_F(HostCopyTest, TheNextUpdateLeavesEverythingBehindAgain) {
  commit();
  copy.bring_all();
  commit();
  EXPECT_FALSE(is_whole());
  device.fetched.clear();
  copy.bring_turn();
  EXPECT_EQ(device.fetched, (std::vector<Fetch>{all_parameters, turn()}));
  copy.bring_all();
  EXPECT_TRUE(is_whole());
}

TEST_F(HostCopyTest, UpdatesThatNobodyReadAreNotFetchedLater) {
  for (int i = 0; i < 5; ++i) {
    commit();
  }
  copy.bring_all();
  EXPECT_EQ(device.fetched.size(), 2U);
  EXPECT_TRUE(is_whole());
}

TEST_F(HostCopyTest, AStateThatIsPutInPlaceIsNotOverwrittenAndTheDeviceLoadsIt) {
  commit();
  state = state_of(3, Step{40});
  copy.replaced();
  copy.bring_turn();
  copy.bring_all();
  EXPECT_TRUE(device.fetched.empty());
  EXPECT_EQ(state.parameters[5], 3);
  EXPECT_EQ(state.momentum[5], -3);
  EXPECT_EQ(device.replaced, 1);
}

TEST_F(HostCopyTest, UpdatesOfAStateThatWasPutInPlaceComeToItsMemory) {
  commit();
  copy.bring_turn();
  state = state_of(3, Step{40});
  copy.replaced();
  commit();
  copy.bring_turn();
  copy.bring_all();
  EXPECT_TRUE(is_whole());
  EXPECT_EQ(state.committed, Step{41});
}

TEST_F(HostCopyTest, OnlyAStateThatIsPutInPlaceIsLoadedAnew) {
  commit();
  copy.bring_turn();
  copy.bring_all();
  EXPECT_EQ(device.replaced, 0);
}

}  // namespace
}  // namespace mayfly::engine
