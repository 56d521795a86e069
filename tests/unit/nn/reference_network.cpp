#include "tests/unit/nn/reference_network.hpp"

#include <algorithm>
#include <cmath>

namespace mayfly::nn::reference {
namespace {

constexpr double kEpsilon = 1e-5;

struct Tensor {
  std::size_t images = 0;
  std::size_t channels = 0;
  std::size_t width = 0;
  std::vector<double> values;

  Tensor() = default;
  Tensor(std::size_t n, std::size_t c, std::size_t w)
      : images(n), channels(c), width(w), values(n * c * w * w) {}
  [[nodiscard]] std::size_t at(std::size_t n, std::size_t c, std::size_t y, std::size_t x) const {
    return ((n * channels + c) * width + y) * width + x;
  }
  [[nodiscard]] std::size_t pixels() const { return width * width; }
};

/// Calls visit(x index, weight index, y index) for each product of a convolution.
template <typename Visit>
void for_each_product(const ConvSpec& spec, const Tensor& x, const Tensor& y, const Visit& visit) {
  const auto kernel = static_cast<std::size_t>(spec.kernel);
  const auto stride = static_cast<std::size_t>(spec.stride);
  const auto padding = static_cast<std::size_t>(spec.padding);
  for (std::size_t n = 0; n < y.images; ++n) {
    for (std::size_t o = 0; o < y.channels; ++o) {
      for (std::size_t i = 0; i < x.channels; ++i) {
        for (std::size_t r = 0; r < kernel; ++r) {
          for (std::size_t s = 0; s < kernel; ++s) {
            const std::size_t w = ((o * x.channels + i) * kernel + r) * kernel + s;
            for (std::size_t row = 0; row < y.width; ++row) {
              const std::size_t from_row = row * stride + r;
              if (from_row < padding || from_row >= x.width + padding) {
                continue;
              }
              for (std::size_t column = 0; column < y.width; ++column) {
                const std::size_t from_column = column * stride + s;
                if (from_column >= padding && from_column < x.width + padding) {
                  visit(x.at(n, i, from_row - padding, from_column - padding), w,
                        y.at(n, o, row, column));
                }
              }
            }
          }
        }
      }
    }
  }
}

/// Calls visit(x index, y index) for each pixel that a window of the stem's max pooling covers,
/// window by window.
template <typename Visit>
void for_each_pooled(const Tensor& x, const Tensor& y, const Visit& visit) {
  for (std::size_t plane = 0; plane < y.images * y.channels; ++plane) {
    for (std::size_t to = 0; to < y.pixels(); ++to) {
      const std::size_t row = 2 * (to / y.width);  // of the window's middle
      const std::size_t column = 2 * (to % y.width);
      for (std::size_t r = row - (row > 0 ? 1 : 0); r < std::min(row + 2, x.width); ++r) {
        for (std::size_t c = column - (column > 0 ? 1 : 0); c < std::min(column + 2, x.width);
             ++c) {
          visit(plane * x.pixels() + r * x.width + c, plane * y.pixels() + to);
        }
      }
    }
  }
}

struct Norm {
  std::vector<double> mean;
  std::vector<double> inverse_deviation;
};

/// The values that one convolution with its norm keeps for backward.
struct Unit {
  const ConvSpec* spec = nullptr;
  Tensor input;
  Tensor raw;
  Norm norm;
  Tensor output;
};

/// The units of one residual block; the projection's, if there is one, is the last.
struct BlockUnits {
  std::size_t first = 0;
  std::size_t convs = 0;
  bool has_projection = false;
};

class Network {
 public:
  Network(const Problem& problem, const std::vector<double>* running)
      : problem_(problem), model_(problem.model), running_(running) {}

  Step run(bool with_gradient) {
    step_.statistics.resize(model_.statistic_count);
    const auto size = static_cast<std::size_t>(model_.image_size);
    Tensor x(problem_.labels.size(), 3, size);
    x.values = problem_.images;
    x = convolve_norm(model_.stem, x);
    rectify(x);
    units_.back().output = x;
    if (model_.stem_pool) {
      x = pool(x);
    }
    for (const BlockSpec& block : model_.blocks) {
      x = run_block(block, x);
    }
    classify(x);
    if (with_gradient) {
      backward();
    }
    return step_;
  }

 private:
  [[nodiscard]] const double* parameter(std::size_t index) const {
    return problem_.parameters.data() + model_.parameters[index].offset;
  }
  double* gradient(std::size_t index) {
    return step_.gradient.data() + model_.parameters[index].offset;
  }

  Tensor run_block(const BlockSpec& block, const Tensor& input) {
    const BlockUnits units{units_.size(), block.convs.size(), block.projection.has_value()};
    Tensor x = input;
    for (std::size_t i = 0; i < units.convs; ++i) {
      x = convolve_norm(block.convs[i], x);
      if (i + 1 < units.convs) {
        rectify(x);
        units_.back().output = x;
      }
    }
    if (units.has_projection) {
      add_shortcut(convolve_norm(*block.projection, input), x, false);
    } else {
      add_shortcut(input, x, block.downsample);
    }
    rectify(x);
    units_[units.first + units.convs - 1].output = x;
    blocks_.push_back(units);
    return x;
  }

  /// Chooses the first one of equal values.
  Tensor pool(const Tensor& x) {
    Tensor y(x.images, x.channels, (x.width + 1) / 2);
    chosen_.assign(y.values.size(), x.values.size());
    for_each_pooled(x, y, [&](std::size_t from, std::size_t to) {
      if (chosen_[to] == x.values.size() || x.values[from] > y.values[to]) {
        chosen_[to] = from;
        y.values[to] = x.values[from];
      }
    });
    return y;
  }

  Tensor convolve_norm(const ConvSpec& spec, const Tensor& x) {
    Unit& unit = units_.emplace_back();
    unit.spec = &spec;
    unit.input = x;
    unit.raw = Tensor(x.images, static_cast<std::size_t>(spec.out_channels),
                      static_cast<std::size_t>(spec.output_size()));
    const double* weights = parameter(spec.weight);
    for_each_product(spec, x, unit.raw, [&](std::size_t from, std::size_t w, std::size_t to) {
      unit.raw.values[to] += x.values[from] * weights[w];
    });
    unit.norm = running_ != nullptr ? running_norm(spec) : measure(spec, unit.raw);
    Tensor y = unit.raw;
    for_each_value(y, [&](std::size_t c, std::size_t i) {
      const double normal = (y.values[i] - unit.norm.mean[c]) * unit.norm.inverse_deviation[c];
      y.values[i] = normal * parameter(spec.weight + 1)[c] + parameter(spec.weight + 2)[c];
    });
    return y;
  }

  template <typename Visit>
  static void for_each_value(const Tensor& x, const Visit& visit) {
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      visit(i / x.pixels() % x.channels, i);
    }
  }

  Norm measure(const ConvSpec& spec, const Tensor& x) {
    Norm norm{std::vector<double>(x.channels), std::vector<double>(x.channels)};
    const auto count = static_cast<double>(x.images * x.pixels());
    for_each_value(x, [&](std::size_t c, std::size_t i) { norm.mean[c] += x.values[i] / count; });
    std::vector<double> variance(x.channels);
    for_each_value(x, [&](std::size_t c, std::size_t i) {
      variance[c] += std::pow(x.values[i] - norm.mean[c], 2) / count;
    });
    for (std::size_t c = 0; c < x.channels; ++c) {
      norm.inverse_deviation[c] = 1 / std::sqrt(variance[c] + kEpsilon);
      step_.statistics[model_.statistics[spec.running_mean].offset + c] = norm.mean[c];
      step_.statistics[model_.statistics[spec.running_mean + 1].offset + c] =
          variance[c] * count / (count - 1);
    }
    return norm;
  }

  Norm running_norm(const ConvSpec& spec) const {
    Norm norm;
    for (int c = 0; c < spec.out_channels; ++c) {
      const auto at = static_cast<std::size_t>(c);
      norm.mean.push_back((*running_)[model_.statistics[spec.running_mean].offset + at]);
      const double variance = (*running_)[model_.statistics[spec.running_mean + 1].offset + at];
      norm.inverse_deviation.push_back(1 / std::sqrt(variance + kEpsilon));
    }
    return norm;
  }

  static void rectify(Tensor& x) {
    for (double& v : x.values) {
      v = std::max(v, 0.0);
    }
  }

  /// Calls visit(index in x, index in y) for each pixel that the shortcut connects.
  template <typename Visit>
  static void for_each_connection(const Tensor& x, const Tensor& y, bool downsample,
                                  const Visit& visit) {
    const std::size_t stride = downsample ? 2 : 1;
    const std::size_t padding = (y.channels - x.channels) / 2;
    for (std::size_t n = 0; n < x.images; ++n) {
      for (std::size_t c = 0; c < x.channels; ++c) {
        for (std::size_t row = 0; row < y.width; ++row) {
          for (std::size_t column = 0; column < y.width; ++column) {
            visit(x.at(n, c, row * stride, column * stride), y.at(n, c + padding, row, column));
          }
        }
      }
    }
  }

  static void add_shortcut(const Tensor& x, Tensor& y, bool downsample) {
    for_each_connection(x, y, downsample,
                        [&](std::size_t from, std::size_t to) { y.values[to] += x.values[from]; });
  }

  void classify(const Tensor& x) {
    const auto classes = static_cast<std::size_t>(model_.classes);
    const double* weight = parameter(model_.classifier_weight);
    features_.assign(x.images * x.channels, 0.0);
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      features_[i / x.pixels()] += x.values[i] / static_cast<double>(x.pixels());
    }
    for (std::size_t n = 0; n < x.images; ++n) {
      double sum = 0;
      for (std::size_t k = 0; k < classes; ++k) {
        double logit = parameter(model_.classifier_weight + 1)[k];
        for (std::size_t c = 0; c < x.channels; ++c) {
          logit += weight[k * x.channels + c] * features_[n * x.channels + c];
        }
        step_.logits.push_back(logit);
        sum += std::exp(logit);
      }
      for (std::size_t k = 0; k < classes; ++k) {
        const double log_probability = step_.logits[n * classes + k] - std::log(sum);
        const double target = (k == problem_.labels[n] ? 1 - problem_.smoothing : 0.0) +
                              problem_.smoothing / static_cast<double>(classes);
        step_.loss -= target * log_probability / static_cast<double>(x.images);
        logit_gradient_.push_back((std::exp(log_probability) - target) /
                                  static_cast<double>(x.images));
      }
    }
  }

  Tensor backward_classifier() {
    const auto classes = static_cast<std::size_t>(model_.classes);
    const Tensor& last = units_[blocks_.back().first + blocks_.back().convs - 1].output;
    Tensor dx(last.images, last.channels, last.width);
    for (std::size_t n = 0; n < dx.images; ++n) {
      for (std::size_t k = 0; k < classes; ++k) {
        const double g = logit_gradient_[n * classes + k];
        gradient(model_.classifier_weight + 1)[k] += g;
        for (std::size_t c = 0; c < dx.channels; ++c) {
          const std::size_t w = k * dx.channels + c;
          gradient(model_.classifier_weight)[w] += g * features_[n * dx.channels + c];
          for (std::size_t p = 0; p < dx.pixels(); ++p) {
            dx.values[(n * dx.channels + c) * dx.pixels() + p] +=
                g * parameter(model_.classifier_weight)[w] / static_cast<double>(dx.pixels());
          }
        }
      }
    }
    return dx;
  }

  static void mask(Tensor& gradient, const Tensor& output) {
    for (std::size_t i = 0; i < gradient.values.size(); ++i) {
      if (output.values[i] <= 0) {
        gradient.values[i] = 0;
      }
    }
  }

  /// Goes back through norm and convolution: from the gradient of the norm's output to that of the
  /// convolution's input.
  Tensor backward_unit(const Unit& unit, const Tensor& g) {
    const ConvSpec& spec = *unit.spec;
    double* scale_gradient = gradient(spec.weight + 1);
    double* shift_gradient = gradient(spec.weight + 2);
    const auto normal = [&](std::size_t c, std::size_t i) {
      return (unit.raw.values[i] - unit.norm.mean[c]) * unit.norm.inverse_deviation[c];
    };
    for_each_value(g, [&](std::size_t c, std::size_t i) {
      scale_gradient[c] += g.values[i] * normal(c, i);
      shift_gradient[c] += g.values[i];
    });
    const auto count = static_cast<double>(g.images * g.pixels());
    Tensor raw_gradient = g;
    for_each_value(g, [&](std::size_t c, std::size_t i) {
      raw_gradient.values[i] =
          parameter(spec.weight + 1)[c] * unit.norm.inverse_deviation[c] *
          (g.values[i] - shift_gradient[c] / count - normal(c, i) * scale_gradient[c] / count);
    });
    Tensor dx(unit.input.images, unit.input.channels, unit.input.width);
    const double* weights = parameter(spec.weight);
    double* weight_gradient = gradient(spec.weight);
    for_each_product(spec, dx, raw_gradient, [&](std::size_t x, std::size_t w, std::size_t y) {
      dx.values[x] += weights[w] * raw_gradient.values[y];
      weight_gradient[w] += unit.input.values[x] * raw_gradient.values[y];
    });
    return dx;
  }

  Tensor backward_block(const BlockUnits& units, bool downsample, Tensor g) {
    mask(g, units_[units.first + units.convs - 1].output);
    Tensor dx = g;
    for (std::size_t i = units.convs; i-- > 0;) {
      if (i + 1 < units.convs) {
        mask(dx, units_[units.first + i].output);
      }
      dx = backward_unit(units_[units.first + i], dx);
    }
    if (units.has_projection) {
      g = backward_unit(units_[units.first + units.convs], g);
    }
    for_each_connection(dx, g, downsample,
                        [&](std::size_t x, std::size_t y) { dx.values[x] += g.values[y]; });
    return dx;
  }

  [[nodiscard]] Tensor backward_pool(const Tensor& g) const {
    const Tensor& stem = units_.front().output;
    Tensor dx(stem.images, stem.channels, stem.width);
    for (std::size_t to = 0; to < g.values.size(); ++to) {
      dx.values[chosen_[to]] += g.values[to];
    }
    return dx;
  }

  void backward() {
    step_.gradient.assign(model_.parameter_count, 0.0);
    Tensor g = backward_classifier();
    for (std::size_t i = model_.blocks.size(); i-- > 0;) {
      g = backward_block(blocks_[i], model_.blocks[i].downsample, g);
    }
    if (model_.stem_pool) {
      g = backward_pool(g);
    }
    mask(g, units_.front().output);
    backward_unit(units_.front(), g);
  }

  const Problem& problem_;
  const Model& model_;
  const std::vector<double>* running_;
  std::vector<Unit> units_;
  std::vector<BlockUnits> blocks_;
  std::vector<std::size_t> chosen_;  ///< for each window of the pooling, an index into its input
  std::vector<double> features_;
  std::vector<double> logit_gradient_;
  Step step_;
};

}  // namespace

Step train(const Problem& problem, bool with_gradient) {
  return Network(problem, nullptr).run(with_gradient);
}

Step evaluate(const Problem& problem, const std::vector<double>& running) {
  return Network(problem, &running).run(false);
}

}  // namespace mayfly::nn::reference
