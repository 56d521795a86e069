#include "nn/cpu/classifier.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"
#include "base/portable_math.hpp"

namespace mayfly::nn::cpu {
namespace {

/// ln of the sum of e^logit, without overflow. A NaN or infinite logit makes it NaN or infinite.
double log_sum_exp(std::span<const double> logits) {
  const double top = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double logit : logits) {
    sum += portable_exp(logit - top);
  }
  return top + portable_log(sum);
}

/// bfloat16: the upper half of a float.
struct Bf16 {
  std::uint16_t bits;
};

double value_of(float x) {
  return static_cast<double>(x);
}
double value_of(Bf16 x) {
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16));
}

void set(float& to, double value) {
  to = static_cast<float>(value);
}
/// Rounds to nearest even.
void set(Bf16& to, double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  to.bits = static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace

Classifier::Classifier(const BlockedShape& shape, int classes, Dtype dtype)
    : shape_(shape),
      classes_(static_cast<std::size_t>(classes)),
      dtype_(dtype),
      features_(shape.images * shape.channels),
      logits_(shape.images * classes_),
      logit_gradients_(shape.images * classes_),
      feature_gradient_(shape.channels) {}

std::span<const double> Classifier::logits_of(std::size_t image) const {
  return std::span(logits_).subspan(image * classes_, classes_);
}

template <typename T>
void Classifier::pool(const T* x, std::size_t image) {
  double* features = features_.data() + image * shape_.channels;
  std::fill_n(features, shape_.channels, 0.0);
  const T* from = x + image * shape_.channels * shape_.pixels;
  for (std::size_t b = 0; b < shape_.channels; b += shape_.block) {
    for (std::size_t p = 0; p < shape_.pixels; ++p, from += shape_.block) {
      for (std::size_t lane = 0; lane < shape_.block; ++lane) {
        features[b + lane] += value_of(from[lane]);
      }
    }
  }
  for (std::size_t c = 0; c < shape_.channels; ++c) {
    features[c] /= static_cast<double>(shape_.pixels);
  }
}

void Classifier::forward(const ClassifierWeights& weights, const void* x, std::size_t count) {
  for (std::size_t n = 0; n < count; ++n) {
    dtype_ == Dtype::kBf16 ? pool(static_cast<const Bf16*>(x), n)
                           : pool(static_cast<const float*>(x), n);
    const double* features = features_.data() + n * shape_.channels;
    for (std::size_t k = 0; k < classes_; ++k) {
      const float* row = weights.weight + k * shape_.channels;
      double sum = static_cast<double>(weights.bias[k]);
      for (std::size_t c = 0; c < shape_.channels; ++c) {
        sum += static_cast<double>(row[c]) * features[c];
      }
      logits_[n * classes_ + k] = sum;
    }
  }
}

bool Classifier::is_hit(std::size_t image, std::uint16_t label) const {
  const std::span<const double> logits = logits_of(image);
  ENSURE(label < classes_, "data sets check their labels");
  return std::ranges::max_element(logits) - logits.begin() == label;
}

TrainResult Classifier::loss_and_gradient(std::span<const std::uint16_t> labels, float smoothing) {
  const double count = static_cast<double>(shape_.images);
  const double off_target = static_cast<double>(smoothing) / static_cast<double>(classes_);
  TrainResult result;
  double loss = 0;
  for (std::size_t n = 0; n < shape_.images; ++n) {
    result.correct += is_hit(n, labels[n]) ? 1U : 0U;
    const std::span<const double> logits = logits_of(n);
    const double normaliser = log_sum_exp(logits);
    for (std::size_t k = 0; k < classes_; ++k) {
      const double on_target = k == labels[n] ? 1.0 - static_cast<double>(smoothing) : 0.0;
      const double target = on_target + off_target;
      const double log_probability = logits[k] - normaliser;
      if (target != 0) {
        loss -= target * log_probability;
      }
      logit_gradients_[n * classes_ + k] = (portable_exp(log_probability) - target) / count;
    }
  }
  result.loss = static_cast<float>(loss / count);
  return result;
}

EvaluationResult Classifier::score(std::span<const std::uint16_t> labels) const {
  EvaluationResult result;
  for (std::size_t n = 0; n < labels.size(); ++n) {
    result.correct += is_hit(n, labels[n]) ? 1U : 0U;
    result.loss_sum += log_sum_exp(logits_of(n)) - logits_of(n)[labels[n]];
  }
  return result;
}

template <typename T>
void Classifier::spread(const float* weight, std::size_t image, T* x_gradient) {
  std::ranges::fill(feature_gradient_, 0.0);
  for (std::size_t k = 0; k < classes_; ++k) {
    const double factor =
        logit_gradients_[image * classes_ + k] / static_cast<double>(shape_.pixels);
    for (std::size_t c = 0; c < shape_.channels; ++c) {
      feature_gradient_[c] += factor * static_cast<double>(weight[k * shape_.channels + c]);
    }
  }
  T* to = x_gradient + image * shape_.channels * shape_.pixels;
  for (std::size_t b = 0; b < shape_.channels; b += shape_.block) {
    for (std::size_t p = 0; p < shape_.pixels; ++p, to += shape_.block) {
      for (std::size_t lane = 0; lane < shape_.block; ++lane) {
        set(to[lane], feature_gradient_[b + lane]);
      }
    }
  }
}

void Classifier::backward(const ClassifierWeights& weights, float* weight_gradient,
                          float* bias_gradient, void* x_gradient) {
  for (std::size_t k = 0; k < classes_; ++k) {
    double bias = 0;
    std::ranges::fill(feature_gradient_, 0.0);  // reused for the gradient of one row of weights
    for (std::size_t n = 0; n < shape_.images; ++n) {
      const double factor = logit_gradients_[n * classes_ + k];
      bias += factor;
      for (std::size_t c = 0; c < shape_.channels; ++c) {
        feature_gradient_[c] += factor * features_[n * shape_.channels + c];
      }
    }
    bias_gradient[k] = static_cast<float>(bias);
    for (std::size_t c = 0; c < shape_.channels; ++c) {
      weight_gradient[k * shape_.channels + c] = static_cast<float>(feature_gradient_[c]);
    }
  }
  for (std::size_t n = 0; n < shape_.images; ++n) {
    dtype_ == Dtype::kBf16 ? spread(weights.weight, n, static_cast<Bf16*>(x_gradient))
                           : spread(weights.weight, n, static_cast<float*>(x_gradient));
  }
}

}  // namespace mayfly::nn::cpu
