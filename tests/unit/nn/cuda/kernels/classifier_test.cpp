// Compares pooling, linear layer and loss of the host's kernels with nn/cpu/classifier. Only the
// order of the loss's sums differs, so gradients differ at most in the last bit.

#include "nn/cpu/classifier.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "tests/unit/nn/cuda/kernels/calls.hpp"
#include "tests/unit/nn/cuda/kernels/on_host.hpp"

namespace mayfly::nn::cuda::test {
namespace {

constexpr std::size_t kBlock = 8;
constexpr float kLossScale = 0x1p12F;  // keeps gradients above fp16's smallest normal number

struct Reference {
  TrainResult train;
  EvaluationResult evaluation;
  std::vector<double> logits;
  std::vector<float> weight_gradient, bias_gradient, x_gradient;
};

Reference reference_of(const ClassifierInput& input) {
  const ClassifierShape& shape = input.shape;
  const std::size_t area = std::size_t{shape.width} * shape.width;
  const cpu::BlockedShape blocked{
      .images = shape.images, .channels = shape.features, .pixels = area, .block = kBlock};
  const auto at = [&](std::size_t i) {
    const std::size_t channel = i % shape.features;
    const std::size_t pixel = i / shape.features % area;
    const std::size_t plane =
        i / shape.features / area * (shape.features / kBlock) + channel / kBlock;
    return (plane * area + pixel) * kBlock + channel % kBlock;
  };
  const std::vector<float> x = as_stored(input.dtype, input.x);
  AlignedBuffer<float> blocked_x(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    blocked_x[at(i)] = x[i];
  }
  cpu::Classifier classifier(blocked, static_cast<int>(shape.classes), Dtype::kFp32);
  const cpu::ClassifierWeights weights{input.weight.data(), input.bias.data()};
  Reference out;
  classifier.forward(weights, blocked_x.data(), shape.images);
  out.train = classifier.loss_and_gradient(input.labels, input.loss.smoothing);
  out.evaluation = classifier.score(std::span(input.labels).first(input.loss.count));
  out.logits.assign(classifier.logits().begin(), classifier.logits().end());
  out.weight_gradient.resize(input.weight.size());
  out.bias_gradient.resize(input.bias.size());
  AlignedBuffer<float> x_gradient(x.size());
  classifier.backward(weights, out.weight_gradient.data(), out.bias_gradient.data(),
                      x_gradient.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    out.x_gradient.push_back(x_gradient[at(i)]);
  }
  return out;
}

/// `got` may contain a factor.
void expect_close(const std::vector<float>& got, const std::vector<float>& want, double relative,
                  double factor = 1) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], factor * want[i], relative * std::fabs(factor * want[i])) << i;
  }
}

class ClassifierKernels : public testing::TestWithParam<Dtype> {};

TEST_P(ClassifierKernels, ComputeWhatTheCpuEngineComputes) {
  // Full and partial tiles, more classes than threads, widths whose area is no power of two.
  for (const ClassifierShape& shape :
       {ClassifierShape{4, 8, 64, 10}, {1, 1, 8, 2}, {67, 3, 72, 100}, {3, 7, 16, 301}}) {
    for (const float smoothing : {0.0F, 0.1F}) {
      ClassifierInput input = random_classifier_input(shape, GetParam(), 1);
      input.loss.smoothing = smoothing;
      input.loss.scale = kLossScale;
      const ClassifierResult got = on_host([&](Machine& m) { return classify(m, input); });
      const Reference want = reference_of(input);
      EXPECT_EQ(got.logits, want.logits);
      EXPECT_EQ(got.correct.front(), want.train.correct);
      EXPECT_NEAR(got.loss_sum.front() / shape.images, want.train.loss, 1e-6);
      expect_close(got.weight_gradient, want.weight_gradient, 1e-6);
      expect_close(got.bias_gradient, want.bias_gradient, 1e-5);
      expect_close(got.x_gradient, want.x_gradient, 1e-6 + rounding_of(GetParam()), kLossScale);
    }
  }
}

TEST_P(ClassifierKernels, ScaleTheGradientOfActivationsOnly) {
  ClassifierInput input = random_classifier_input({5, 3, 16, 10}, GetParam(), 6);
  const auto scaled = [&](float scale) {
    input.loss.scale = scale;
    input.loss.unscale = 1 / scale;
    return on_host([&](Machine& m) { return classify(m, input); });
  };
  ClassifierResult small = scaled(kLossScale);
  const ClassifierResult large = scaled(8 * kLossScale);
  for (float& g : small.x_gradient) {
    g *= 8;
  }
  EXPECT_TRUE(same_results(small, large));
}

TEST_P(ClassifierKernels, CountOnlyTheImagesOfAnEvaluation) {
  ClassifierInput input = random_classifier_input({9, 2, 16, 5}, GetParam(), 2);
  input.loss = {0, 6};
  const ClassifierResult got = on_host([&](Machine& m) { return classify(m, input); });
  const Reference want = reference_of(input);
  EXPECT_EQ(got.correct.front(), want.evaluation.correct);
  EXPECT_NEAR(got.loss_sum.front(), want.evaluation.loss_sum, 1e-9);
}

TEST_P(ClassifierKernels, TakeTheFirstOfEqualLogits) {
  ClassifierInput input = random_classifier_input({3, 1, 8, 300}, GetParam(), 3);
  std::fill(input.weight.begin(), input.weight.end(), 0.0F);
  std::fill(input.bias.begin(), input.bias.end(), -1.0F);
  input.bias[7] = input.bias[135] = input.bias[290] = 2;
  input.labels = {7, 135, 290};
  const ClassifierResult got = on_host([&](Machine& m) { return classify(m, input); });
  EXPECT_EQ(got.correct.front(), 1U);
}

TEST_P(ClassifierKernels, ShowANanInTheLoss) {
  ClassifierInput input = random_classifier_input({3, 1, 8, 10}, GetParam(), 4);
  input.x[9] = std::numeric_limits<float>::quiet_NaN();
  const ClassifierResult got = on_host([&](Machine& m) { return classify(m, input); });
  EXPECT_TRUE(std::isnan(got.loss_sum.front()));
}

TEST_P(ClassifierKernels, KeepAHugeLogitFinite) {
  ClassifierInput input = random_classifier_input({2, 1, 8, 10}, GetParam(), 5);
  input.bias[4] = 1e30F;
  input.labels = {4, 5};
  const ClassifierResult got = on_host([&](Machine& m) { return classify(m, input); });
  EXPECT_EQ(got.correct.front(), 1U);
  EXPECT_TRUE(std::isfinite(got.loss_sum.front()));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, ClassifierKernels,
                         testing::Values(Dtype::kFp32, Dtype::kBf16, Dtype::kFp16),
                         [](const auto& with) { return std::string(name_of(with.param)); });

}  // namespace
}  // namespace mayfly::nn::cuda::test
