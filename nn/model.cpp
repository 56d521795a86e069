#include "nn/model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace mayfly::nn {
namespace {

constexpr int kClassesMax = 256;  // labels are one byte
constexpr int kStages = 3;
constexpr int kStemChannels = 16;

constexpr std::pair<const char*, int> kDepths[] = {
    {"resnet20", 20}, {"resnet32", 32}, {"resnet44", 44}, {"resnet56", 56}, {"resnet110", 110}};

/// Levenshtein distance, for "did you mean".
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

Error unknown_model(const std::string& name) {
  const std::vector<std::string> names = model_names();
  const auto nearest =
      std::min_element(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
        return edit_distance(a, name) < edit_distance(b, name);
      });
  std::string known;
  for (const std::string& each : names) {
    known += (known.empty() ? "" : ", ") + each;
  }
  return {Errc::kInvalidInput, "unknown model \"" + name + "\"; did you mean \"" + *nearest +
                                   "\"? (known: " + known + ")"};
}

/// Appends tensors to the flat layouts while the network is described from front to back.
class Builder {
 public:
  explicit Builder(Model& model) : model_(model) {}

  /// `prefix` is "" or "layer1.0."; `index` is the number behind conv and bn.
  ConvSpec conv_and_norm(const std::string& prefix, int index, int in, int out, int stride,
                         int input_size) {
    ConvSpec spec{.in_channels = in,
                  .out_channels = out,
                  .kernel = 3,
                  .stride = stride,
                  .padding = 1,
                  .input_size = input_size,
                  .weight = model_.parameters.size(),
                  .running_mean = model_.statistics.size()};
    const std::string conv = fmt::format("{}conv{}", prefix, index);
    const std::string norm = fmt::format("{}bn{}", prefix, index);
    parameter(conv + ".weight", {out, in, spec.kernel, spec.kernel});
    parameter(norm + ".weight", {out});
    parameter(norm + ".bias", {out});
    statistic(norm + ".running_mean", out);
    statistic(norm + ".running_var", out);
    return spec;
  }

  void parameter(std::string name, std::vector<std::int64_t> shape) {
    append(model_.parameters, model_.parameter_count, std::move(name), std::move(shape));
  }

 private:
  void statistic(std::string name, int channels) {
    append(model_.statistics, model_.statistic_count, std::move(name), {channels});
  }

  static void append(std::vector<TensorInfo>& list, std::size_t& total, std::string name,
                     std::vector<std::int64_t> shape) {
    std::size_t size = 1;
    for (const std::int64_t extent : shape) {
      size *= static_cast<std::size_t>(extent);
    }
    list.push_back({std::move(name), std::move(shape), total, size});
    total += size;
  }

  Model& model_;
};

Model build(const std::string& name, int depth, int classes) {
  Model model;
  model.name = name;
  model.classes = classes;
  Builder builder(model);
  int channels = kStemChannels;
  int size = model.image_size;
  model.stem = builder.conv_and_norm("", 1, 3, channels, 1, size);
  const int blocks_per_stage = (depth - 2) / (2 * kStages);
  for (int stage = 0; stage < kStages; ++stage) {
    for (int i = 0; i < blocks_per_stage; ++i) {
      const std::string prefix = fmt::format("layer{}.{}.", stage + 1, i);
      BlockSpec block;
      block.downsample = stage > 0 && i == 0;
      const int stride = block.downsample ? 2 : 1;
      const int out = channels * stride;
      block.conv1 = builder.conv_and_norm(prefix, 1, channels, out, stride, size);
      channels = out;
      size /= stride;
      block.conv2 = builder.conv_and_norm(prefix, 2, channels, channels, 1, size);
      model.blocks.push_back(block);
    }
  }
  model.features = channels;
  model.classifier_weight = model.parameters.size();
  builder.parameter("fc.weight", {classes, channels});
  builder.parameter("fc.bias", {classes});
  return model;
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, depth] : kDepths) {
    names.emplace_back(name);
  }
  return names;
}

Result<Model> make_model(const std::string& name, int classes) {
  if (classes < 2 || classes > kClassesMax) {
    return Error{Errc::kInvalidInput,
                 fmt::format("{} classes; a model needs 2 to {}", classes, kClassesMax)};
  }
  for (const auto& [known, depth] : kDepths) {
    if (name == known) {
      return build(name, depth, classes);
    }
  }
  return unknown_model(name);
}

}  // namespace mayfly::nn
