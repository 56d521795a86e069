#include "benchmarks/step/step_cost.hpp"

#include <gtest/gtest.h>

namespace mayfly::bench {
namespace {

double forward_multiply_adds(const char* name) {
  const nn::Model model = nn::make_usual_model(name).value();
  double flops = 0;
  for (const LayerCost& layer : step_cost(model, 1).layers) {
    flops += layer.forward.flops;
  }
  return flops / 2;
}

TEST(StepCost, ForwardIsWhatThePapersCount) {
  // He et al. 2016, table 1, and the usual count for the CIFAR networks, in multiply-adds.
  EXPECT_NEAR(forward_multiply_adds("resnet20"), 40.55e6, 0.01e6);
  EXPECT_NEAR(forward_multiply_adds("resnet18"), 1.81e9, 0.01e9);
  EXPECT_NEAR(forward_multiply_adds("resnet50"), 4.09e9, 0.01e9);
}

TEST(StepCost, BackwardIsTwiceForwardButForTheStem) {
  const nn::Model model = nn::make_usual_model("resnet20").value();
  const StepCost cost = step_cost(model, 4);
  ASSERT_EQ(cost.layers.size(), 19u);
  EXPECT_EQ(cost.layers[0].backward.flops, cost.layers[0].forward.flops);
  for (std::size_t i = 1; i < cost.layers.size(); ++i) {
    EXPECT_EQ(cost.layers[i].backward.flops, 2 * cost.layers[i].forward.flops);
  }
}

TEST(StepCost, OneLayerByHand) {
  nn::ConvSpec spec;
  spec.in_channels = 16;
  spec.out_channels = 32;
  spec.stride = 2;
  spec.input_size = 32;
  const LayerCost cost = layer_cost(spec, true, 2);
  const double out = 2 * 32 * 16 * 16;
  const double in = 2 * 16 * 32 * 32;
  const double weights = 9 * 16 * 32;
  EXPECT_EQ(cost.forward.flops, out * 9 * 16 * 2);
  EXPECT_EQ(cost.forward.bytes, 4 * (in + out + weights));
  EXPECT_EQ(cost.backward.bytes, 4 * (2 * out + 2 * in + 2 * weights));
  const LayerCost half = layer_cost(spec, true, 2, nn::Dtype::kBf16);
  EXPECT_EQ(half.forward.flops, cost.forward.flops);
  EXPECT_EQ(half.forward.bytes, 2 * (in + out) + 4 * weights);
}

TEST(StepCost, GrowsWithTheMicrobatchButForTheWeights) {
  const nn::Model model = nn::make_usual_model("resnet18").value();
  const PassCost one = step_cost(model, 1).total;
  const PassCost four = step_cost(model, 4).total;
  EXPECT_DOUBLE_EQ(four.flops, 4 * one.flops);
  EXPECT_GT(four.bytes, one.bytes);
  EXPECT_LT(four.bytes, 4 * one.bytes);
}

}  // namespace
}  // namespace mayfly::bench
