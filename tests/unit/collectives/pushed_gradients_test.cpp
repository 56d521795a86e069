#include "collectives/parameter_server/pushed_gradients.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace mayfly::parameter_server {
namespace {

constexpr std::size_t kFloatsKept = 4;

Header push_of_slice(std::uint64_t slice) {
  Header push;
  push.type = MessageType::kPush;
  push.slice = slice;
  push.count = 2;
  push.samples = 10;
  push.correct = 3;
  push.loss = 0.5;
  push.sample_hash = {1, 2, 3, 4};
  return push;
}

PushedSum filled(PushedGradients& gradients, float value) {
  PushedSum sum = gradients.space();
  std::ranges::fill(sum.own.span(), value);
  return sum;
}

TEST(PushedGradients, GivesThoseOfAnUpdateInItsOrderWithTheSumOfTheirFacts) {
  PushedGradients gradients(kFloatsKept);
  (void)gradients.keep(filled(gradients, 1), push_of_slice(8), 0);
  (void)gradients.keep(filled(gradients, 2), push_of_slice(7), 0);
  const PushedGradients::Sums sums = gradients.apply({.slices = {7, 8}, .version = 5});
  ASSERT_EQ(sums.slices.size(), 2U);
  EXPECT_EQ(sums.slices[0].sum[kFloatsKept - 1], 2);
  EXPECT_EQ(sums.slices[1].sum[0], 1);
  EXPECT_EQ(sums.slices[0].microbatches, 2U);
  EXPECT_EQ(sums.facts.update.version, 5U);
  EXPECT_EQ(sums.facts.microbatches, 4U);
  EXPECT_EQ(sums.facts.samples, 20U);
  EXPECT_EQ(sums.facts.correct, 6U);
  EXPECT_EQ(sums.facts.loss, 1);
  EXPECT_EQ(sums.facts.sample_hash[3], 8U);
}

TEST(PushedGradients, UsesMemoryAgainOnlyWhenTheGradientIsAppliedAndTheFollowerHasIt) {
  PushedGradients gradients(kFloatsKept);
  const float* const memory = gradients.keep(filled(gradients, 1), push_of_slice(0), 3).data();
  gradients.release(3);
  const PushedSum second = gradients.space();
  EXPECT_NE(second.span().data(), memory) << "not applied yet";
  (void)gradients.apply({.slices = {0}});
  gradients.release(2);
  const PushedSum third = gradients.space();
  EXPECT_NE(third.span().data(), memory) << "the follower may be sent it again";
  gradients.release(3);
  EXPECT_EQ(gradients.space().span().data(), memory);
}

TEST(PushedGradients, UsesMemoryAgainOfAGradientThatIsNotNeeded) {
  PushedGradients gradients(kFloatsKept);
  PushedSum repeat = filled(gradients, 1);
  const float* const memory = repeat.span().data();
  gradients.recycle(std::move(repeat));
  gradients.recycle(PushedSum());
  EXPECT_EQ(gradients.space().span().data(), memory);
}

TEST(PushedGradients, ReturnsASlotToItsWorkerWhenTheGradientIsApplied) {
  const auto slots = SharedSlots::create(kFloatsKept * sizeof(float)).value();
  const std::vector<float> values(kFloatsKept, 7);
  const ByteSpan payload = std::as_bytes(std::span(values));
  std::vector<std::uint64_t> taken;
  while (const std::uint64_t slot = slots->write_gradient(payload)) {
    taken.push_back(slot);
  }
  PushedGradients gradients(kFloatsKept);
  const std::span<const float> kept =
      gradients.keep({{}, TakenSlot(slots, taken[0])}, push_of_slice(0), 0);
  EXPECT_EQ(kept.size(), kFloatsKept);
  EXPECT_EQ(kept[0], 7);
  EXPECT_EQ(slots->write_gradient(payload), 0U) << "no slot is free";
  (void)gradients.apply({.slices = {0}});
  gradients.release(0);
  EXPECT_EQ(slots->write_gradient(payload), taken[0]);
}

}  // namespace
}  // namespace mayfly::parameter_server
