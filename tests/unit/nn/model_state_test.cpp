#include "nn/model_state.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace mayfly::nn {
namespace {

Model small_resnet() {
  return make_model("resnet20", 10).value();
}

double mean_square(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) {
    sum += static_cast<double>(v) * v;
  }
  return sum / static_cast<double>(values.size());
}

TEST(ModelState, IsAPureFunctionOfModelAndSeed) {
  const Model model = small_resnet();
  const Digest first = digest_of(make_initial_state(model, 7, 3, -5));
  EXPECT_EQ(first, digest_of(make_initial_state(model, 7, 3, -5)));
  EXPECT_NE(first, digest_of(make_initial_state(model, 8, 3, -5)));
}

// A changed value here means that old seeds no longer reproduce old runs.
TEST(ModelState, HasTheRecordedBits) {
  const Model model = small_resnet();
  EXPECT_EQ(to_string(digest_of(make_initial_state(model, 1, 0, 0))),
            "cade4fc309315d5891416a87ce953e36");
}

TEST(ModelState, AnUndrawnStateIsTheInitialOneOnceItIsDrawn) {
  const Model model = small_resnet();
  ModelState state = make_undrawn_state(model, 3, -5);
  EXPECT_FALSE(state.is_drawn);
  draw_weights(model, 7, state);
  draw_weights(model, 8, state);  // no effect: the weights are drawn already
  EXPECT_TRUE(state.is_drawn);
  EXPECT_EQ(digest_of(state), digest_of(make_initial_state(model, 7, 3, -5)));
}

TEST(ModelStateDeathTest, NobodySeesAnUndrawnState) {
  const ModelState state = make_undrawn_state(small_resnet(), 3, -5);
  EXPECT_DEATH((void)digest_of(state), "only a real state is compared");
}

TEST(ModelState, ConvolutionsAreHeNormal) {
  for (const char* name : {"resnet20", "resnet50"}) {
    const Model model = make_model(name, 10).value();
    const ModelState state = make_initial_state(model, 1, 0, 0);
    for (const ConvSpec* conv : convolutions_of(model)) {
      const TensorInfo& info = model.parameters[conv->weight];
      const double expected = 2.0 / (conv->kernel * conv->kernel * conv->out_channels);
      const double found = mean_square(state.parameters.span().subspan(info.offset, info.size));
      const double tolerance = 6.0 * std::sqrt(2.0 / static_cast<double>(info.size));
      EXPECT_NEAR(found / expected, 1.0, tolerance) << name << " " << info.name;
      EXPECT_EQ(state.parameters[model.parameters[conv->weight + 1].offset], 1.0F);
    }
  }
}

TEST(ModelState, LinearLayerStaysWithinItsBound) {
  const Model model = small_resnet();
  const ModelState state = make_initial_state(model, 3, 0, 0);
  const TensorInfo& weight = model.parameters[model.classifier_weight];
  const auto values = state.parameters.span().subspan(weight.offset);
  for (const float v : values) {
    EXPECT_LE(std::abs(v), 0.125F);
  }
  EXPECT_NEAR(mean_square(values), 0.125 * 0.125 / 3, 0.001);
}

TEST(ModelState, NormsStartAsIdentity) {
  const Model model = small_resnet();
  const ModelState state = make_initial_state(model, 1, 4, 77);
  const ConvSpec& conv = model.blocks[4].convs[0];
  EXPECT_EQ(state.parameters[model.parameters[conv.weight + 1].offset], 1.0F);
  EXPECT_EQ(state.parameters[model.parameters[conv.weight + 2].offset], 0.0F);
  EXPECT_EQ(state.statistics[model.statistics[conv.running_mean].offset], 0.0F);
  EXPECT_EQ(state.statistics[model.statistics[conv.running_mean + 1].offset], 1.0F);
  EXPECT_EQ(state.exponents, (std::vector<std::int32_t>(4, 77)));
  EXPECT_EQ(state.committed, Step{0});
}

TEST(ModelState, DigestSeesEveryPart) {
  const Model model = small_resnet();
  ModelState state = make_initial_state(model, 1, 2, 0);
  Digest last = digest_of(state);
  const auto changed = [&] {
    const Digest now = digest_of(state);
    const bool differs = now != last;
    last = now;
    return differs;
  };
  state.committed = Step{1};
  EXPECT_TRUE(changed());
  state.parameters[model.parameter_count - 1] += 1;
  EXPECT_TRUE(changed());
  state.momentum[0] = 1;
  EXPECT_TRUE(changed());
  state.statistics[0] = 1;
  EXPECT_TRUE(changed());
  state.exponents[1] = 1;
  EXPECT_TRUE(changed());
  state.loss_scale = LossScale{};
  EXPECT_TRUE(changed());
  state.loss_scale->exponent -= 1;
  EXPECT_TRUE(changed());
  state.loss_scale->steps += 1;
  EXPECT_TRUE(changed());
}

}  // namespace
}  // namespace mayfly::nn
