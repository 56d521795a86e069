#include "nn/cpu/cpu_engine.hpp"

#include <gtest/gtest.h>

#include <map>

#include "nn/model_state.hpp"

namespace mayfly::nn::cpu {
namespace {

struct Seen final : StepObserver {
  void passed(StepPart part, const ConvSpec* layer) override {
    order.push_back(part);
    ++counts[{part, layer}];
  }
  std::vector<StepPart> order;
  std::map<std::pair<StepPart, const ConvSpec*>, int> counts;
};

struct NoSink final : GradientSink {
  void ready_from(std::size_t) override {}
};

/// Trains one microbatch of two small images.
std::vector<float> gradient_of(const Model& model, StepObserver* observer) {
  const auto engine = make_cpu_engine(model, 2, {.observer = observer}).value();
  const ModelState state = make_initial_state(model, 1, 0, 0);
  const auto side = static_cast<std::size_t>(model.image_size);
  std::vector<float> images(2 * 3 * side * side);
  for (std::size_t i = 0; i < images.size(); ++i) {
    images[i] = static_cast<float>(i % 7) / 7;
  }
  const std::vector<std::uint16_t> labels = {1, 0};
  std::vector<float> gradient(model.parameter_count);
  std::vector<float> statistics(model.statistic_count);
  NoSink sink;
  (void)engine->train({state.parameters.span(), state.statistics.span(), 1}, {images, labels}, 0,
                      gradient, statistics, sink);
  return gradient;
}

void expect_every_layer_once(const Model& model) {
  Seen seen;
  gradient_of(model, &seen);
  for (const ConvSpec* layer : convolutions_of(model)) {
    const int forward = seen.counts[{StepPart::kForward, layer}];
    const int backward = seen.counts[{StepPart::kBackward, layer}];
    EXPECT_EQ(forward, 1) << model.parameters[layer->weight].name;
    EXPECT_EQ(backward, 1) << model.parameters[layer->weight].name;
  }
  const int classifier = seen.counts[{StepPart::kClassifier, nullptr}];
  EXPECT_EQ(classifier, 1);
  EXPECT_EQ(seen.order.front(), StepPart::kOutside);
  EXPECT_EQ(seen.order.back(), StepPart::kBackward);  // the stem's, the last part of a step
}

TEST(StepObserver, IsToldOfEveryLayerOnceForwardAndOnceBackward) {
  expect_every_layer_once(make_model("resnet20", 10, 8).value());
  expect_every_layer_once(make_model("resnet18", 10, 32).value());
  expect_every_layer_once(make_model("resnet50", 10, 32).value());
}

TEST(StepObserver, ChangesNoBit) {
  const Model model = make_model("resnet20", 10, 8).value();
  Seen seen;
  EXPECT_EQ(gradient_of(model, &seen), gradient_of(model, nullptr));
}

}  // namespace
}  // namespace mayfly::nn::cpu
