#pragma once

// Private to nn/cpu: global average pooling, linear layer and softmax cross entropy. They are
// small, so they are computed in double with plain loops of fixed order.

#include <cstdint>
#include <span>
#include <vector>

#include "nn/cpu/kernels.hpp"
#include "nn/step_engine.hpp"

namespace mayfly::nn::cpu {

struct ClassifierWeights {
  const float* weight;  ///< classes x features
  const float* bias;
};

class Classifier {
 public:
  /// `dtype` is that of x and its gradient.
  Classifier(const BlockedShape& shape, int classes, Dtype dtype);

  /// Logits of the first `count` images.
  void forward(const ClassifierWeights& weights, const void* x, std::size_t count);

  /// Mean smoothed loss over all images, and its gradient with respect to the logits.
  TrainResult loss_and_gradient(std::span<const std::uint16_t> labels, float smoothing);

  /// Plain loss summed over the images of the last forward().
  [[nodiscard]] EvaluationResult score(std::span<const std::uint16_t> labels) const;

  /// The logits of the last forward(), images x classes.
  [[nodiscard]] std::span<const double> logits() const { return logits_; }

  /// After loss_and_gradient: gradients of weight, bias and x.
  void backward(const ClassifierWeights& weights, float* weight_gradient, float* bias_gradient,
                void* x_gradient);

 private:
  template <typename T>
  void pool(const T* x, std::size_t image);
  template <typename T>
  void spread(const float* weight, std::size_t image, T* x_gradient);
  [[nodiscard]] std::span<const double> logits_of(std::size_t image) const;
  [[nodiscard]] bool is_hit(std::size_t image, std::uint16_t label) const;

  BlockedShape shape_;
  std::size_t classes_;
  Dtype dtype_;
  std::vector<double> features_;  ///< images x channels
  std::vector<double> logits_;    ///< images x classes
  std::vector<double> logit_gradients_;
  std::vector<double> feature_gradient_;  ///< of one image
};

}  // namespace mayfly::nn::cpu
