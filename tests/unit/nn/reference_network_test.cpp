#include "tests/unit/nn/reference_network.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.hpp"
#include "nn/model_builder.hpp"
#include "nn/model_state.hpp"

namespace mayfly::nn::reference {
namespace {

/// A problem whose norms are not the identity, with random images.
Problem make_problem(const Model& model, std::size_t count) {
  const CounterRandom random(8);
  const ModelState state = make_initial_state(model, 5, 0, 0);
  Problem problem{model,
                  {state.parameters.data(), state.parameters.data() + model.parameter_count},
                  {},
                  {},
                  0.1};
  for (const ConvSpec* conv : convolutions_of(model)) {
    const CounterRandom draw = random.split(conv->weight);
    const TensorInfo& scale = model.parameters[conv->weight + 1];
    for (std::size_t i = 0; i < 2 * scale.size; ++i) {  // the shifts follow
      problem.parameters[scale.offset + i] += 0.4 * (draw.unit(i) - 0.5);
    }
  }
  const auto side = static_cast<std::size_t>(model.image_size);
  for (std::size_t i = 0; i < count * 3 * side * side; ++i) {
    problem.images.push_back(2 * random.unit(i) - 1);
  }
  for (std::size_t n = 0; n < count; ++n) {
    problem.labels.push_back(static_cast<std::uint16_t>(n % 10));
  }
  return problem;
}

/// A small network with all features that only the ImageNet networks have: pooling, a basic block
/// and a bottleneck with a projection, and one of each without.
Model small_model() {
  Model model;
  model.name = "small";
  model.image_size = 24;
  ModelBuilder builder(model);
  const auto conv = [&](const char* name, const ConvGeometry& geometry) {
    return builder.conv_and_norm(std::string(name) + ".conv", std::string(name) + ".bn", geometry);
  };
  model.stem = conv("stem", {3, 4, 7, 2, 24});
  model.stem_pool = true;
  model.blocks = {{.convs = {conv("a1", {4, 4, 3, 1, 6}), conv("a2", {4, 4, 3, 1, 6})},
                   .projection = std::nullopt},
                  {.convs = {conv("b1", {4, 6, 3, 2, 6}), conv("b2", {6, 6, 3, 1, 3})},
                   .projection = conv("b3", {4, 6, 1, 2, 6})},
                  {.convs = {conv("c1", {6, 4, 1, 1, 3}), conv("c2", {4, 4, 3, 2, 3}),
                             conv("c3", {4, 8, 1, 1, 2})},
                   .projection = conv("c4", {6, 8, 1, 2, 3})},
                  {.convs = {conv("d1", {8, 4, 1, 1, 2}), conv("d2", {4, 4, 3, 1, 2}),
                             conv("d3", {4, 8, 1, 1, 2})},
                   .projection = std::nullopt}};
  builder.classifier(8);
  return model;
}

TEST(ReferenceNetwork, ItsGradientIsTheSlopeOfItsLossInBlocksOfAllKinds) {
  const Model model = small_model();
  Problem problem = make_problem(model, 3);
  const std::vector<double> gradient = train(problem, true).gradient;
  for (const TensorInfo& info : model.parameters) {
    const std::size_t at = info.offset + info.size / 2;
    constexpr double kStep = 1e-7;  // small, because a ReLU that flips within it bends the loss
    const double origin = problem.parameters[at];
    problem.parameters[at] = origin + kStep;
    const double above = train(problem, false).loss;
    problem.parameters[at] = origin - kStep;
    const double below = train(problem, false).loss;
    problem.parameters[at] = origin;
    EXPECT_NEAR((above - below) / (2 * kStep), gradient[at], 1e-6 + 1e-4 * std::abs(gradient[at]))
        << info.name;
  }
}

}  // namespace
}  // namespace mayfly::nn::reference
