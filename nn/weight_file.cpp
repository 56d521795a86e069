#include "nn/weight_file.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.hpp"
#include "base/text.hpp"

namespace mayfly::nn {
namespace {

const std::string kCounter = "num_batches_tracked";
const std::string kClassifierWeight = "fc.weight";
const std::string kClassifierBias = "fc.bias";

// ---- names

std::string without_end(const std::string& text, std::size_t count) {
  return text.substr(0, text.size() - count);
}

/// The prefix of the norm behind a convolution, for example "layer1.0.bn1.".
std::string norm_prefix(const Model& model, const ConvSpec& conv) {
  return without_end(model.parameters[conv.weight + 1].name, std::string("weight").size());
}

std::string our_name(std::string name) {
  constexpr std::string_view kWrapper = "module.";  // of DataParallel
  constexpr std::string_view kLinear = "linear.";
  if (name.starts_with(kWrapper)) {
    name.erase(0, kWrapper.size());
  }
  if (name.starts_with(kLinear)) {
    name.replace(0, kLinear.size(), "fc.");
  }
  return name;
}

/// The text behind a name in an error: the number of other tensors with the same problem.
std::string and_more(std::size_t count) {
  return count > 1 ? fmt::format(" (and {} more)", count - 1) : "";
}

/// The nearest of `names`, if it is near enough to be a suggestion.
std::string suggestion(const std::string& name, const std::set<std::string>& names) {
  constexpr std::size_t kBytesMax = 256;  // a file may hold names of megabytes
  if (name.size() > kBytesMax) {
    return "";
  }
  std::string nearest;
  std::size_t distance = name.size() / 3 + 1;
  for (const std::string& candidate : names) {
    if (const std::size_t d = edit_distance(name, candidate); d < distance) {
      nearest = candidate;
      distance = d;
    }
  }
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

std::set<std::string> names_of(const Model& model) {
  std::set<std::string> names;
  for (const auto* list : {&model.parameters, &model.statistics}) {
    for (const TensorInfo& info : *list) {
      names.insert(info.name);
    }
  }
  return names;
}

/// Checks that every tensor belongs to the model and that no tensor of the model is missing.
Result<void> check_names(const Model& model, const WeightTensors& tensors) {
  std::set<std::string> missing = names_of(model);
  std::vector<std::string> unknown;
  for (const auto& [name, tensor] : tensors) {
    if (missing.erase(name) == 0) {
      unknown.push_back(name);
    }
  }
  // A misspelt name is both unknown and missing; the suggestion is more helpful, so it is reported.
  if (!unknown.empty()) {
    return Error{
        Errc::kInvalidInput,
        fmt::format("tensor {}{} is not part of {}{}", printable_line(unknown[0]),
                    and_more(unknown.size()), model.name, suggestion(unknown[0], missing))};
  }
  for (const auto* list : {&model.parameters, &model.statistics}) {
    for (const TensorInfo& info : *list) {
      if (missing.contains(info.name)) {
        return Error{Errc::kInvalidInput,
                     fmt::format("tensor {}{} of {} is missing; expected shape {}", info.name,
                                 and_more(missing.size()), model.name, shape_text(info.shape))};
      }
    }
  }
  return {};
}

// ---- values

/// IEEE 754 binary16 to binary32, exactly.
float from_half(std::uint16_t bits) {
  const auto sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  const std::uint32_t fraction = bits & 0x3ffU;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1.0p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t widened = exponent == 0x1f ? 0xff : exponent + 112;
  return std::bit_cast<float>(sign | widened << 23 | fraction << 13);
}

float from_brain(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

template <typename Convert>
void widen(ByteSpan bytes, std::span<float> out, const Convert& convert) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t element = 0;  // copied out: the file's tensors may be unaligned
    std::memcpy(&element, bytes.data() + i * sizeof element, sizeof element);
    out[i] = convert(element);
  }
}

Error misfit(const TensorInfo& info, const TensorView& found) {
  return {Errc::kInvalidInput,
          fmt::format("tensor {}: expected F32, F16 or BF16 {}, found {} {}", info.name,
                      shape_text(info.shape), found.type, shape_text(found.shape))};
}

Result<void> check_values(const TensorInfo& info, std::span<const float> values) {
  const bool is_variance = info.name.ends_with(".running_var");
  for (const float v : values) {
    if (!std::isfinite(v) || (is_variance && v < 0)) {
      return Error{Errc::kInvalidInput, fmt::format("tensor {} holds {}", info.name, v)};
    }
  }
  return {};
}

Result<void> copy_tensor(const TensorInfo& info, const TensorView& from, std::span<float> flat) {
  const std::span<float> to = flat.subspan(info.offset, info.size);
  if (from.shape != info.shape) {
    return misfit(info, from);
  }
  if (from.type == "F32") {
    std::memcpy(to.data(), from.bytes.data(), to.size_bytes());
  } else if (from.type == "F16") {
    widen(from.bytes, to, from_half);
  } else if (from.type == "BF16") {
    widen(from.bytes, to, from_brain);
  } else {
    return misfit(info, from);
  }
  return check_values(info, to);
}

/// Whether the classifier differs from the model's only in the number of classes.
bool has_other_classes(const Model& model, const WeightTensors& tensors) {
  const auto classes = classes_of(tensors);
  return classes.has_value() && *classes != model.classes &&
         tensors.at(kClassifierWeight).shape[1] == model.features &&
         tensors.at(kClassifierBias).shape == std::vector<std::int64_t>{*classes};
}

Result<void> copy_tensors(const std::vector<TensorInfo>& infos, std::size_t count,
                          const WeightTensors& tensors, std::span<float> flat) {
  for (std::size_t i = 0; i < count; ++i) {
    if (auto copied = copy_tensor(infos[i], tensors.at(infos[i].name), flat); !copied.ok()) {
      return copied;
    }
  }
  return {};
}

/// True if the file looks like one of torch.save(): a ZIP archive, or a pickle of an earlier
/// version, which begins with PyTorch's number 0x1950a86a20f9469cfc6c. The header of a safetensors
/// file may be 0x..80 bytes long, too.
bool is_of_torch_save(ByteSpan file) {
  const auto begins_with = [file](std::string_view text) {
    return file.size() >= text.size() && std::memcmp(file.data(), text.data(), text.size()) == 0;
  };
  return begins_with("PK\x03\x04") || begins_with("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9");
}

}  // namespace

Bytes encode_weight_file(const Model& model, const ModelState& state) {
  const auto steps = static_cast<std::int64_t>(value(state.committed));
  std::vector<NamedTensor> tensors;
  // The 8-byte scalars come first, because they might be unaligned behind F32 tensors.
  for (const ConvSpec* conv : convolutions_of(model)) {
    tensors.push_back(
        {norm_prefix(model, *conv) + kCounter, {"I64", {}, std::as_bytes(std::span(&steps, 1))}});
  }
  const auto append = [&](const std::vector<TensorInfo>& infos, std::span<const float> flat) {
    for (const TensorInfo& info : infos) {
      const ByteSpan bytes = std::as_bytes(flat.subspan(info.offset, info.size));
      tensors.push_back({info.name, {"F32", info.shape, bytes}});
    }
  };
  append(model.parameters, state.parameters.span());
  append(model.statistics, state.statistics.span());
  return encode_safetensors(tensors);
}

Result<WeightTensors> read_weight_file(ByteSpan file) {
  Result<WeightTensors> decoded = decode_safetensors(file);
  if (!decoded.ok()) {
    return Error{decoded.error().code,
                 "no safetensors file" +
                     (is_of_torch_save(file)
                          ? ", but one of torch.save(); docs/pytorch.md says how to make one of it"
                          : ": " + decoded.error().detail)};
  }
  WeightTensors tensors;
  for (auto& [name, tensor] : decoded.value()) {
    if (name.ends_with("." + kCounter)) {
      continue;
    }
    if (!tensors.emplace(our_name(name), std::move(tensor)).second) {
      return Error{Errc::kInvalidInput, "two tensors stand for " + printable_line(our_name(name))};
    }
  }
  return tensors;
}

std::optional<int> classes_of(const WeightTensors& tensors) {
  const auto weight = tensors.find(kClassifierWeight);
  if (weight == tensors.end() || !tensors.contains(kClassifierBias) ||
      weight->second.shape.size() != 2 || weight->second.shape[0] > INT32_MAX) {
    return std::nullopt;
  }
  return static_cast<int>(weight->second.shape[0]);
}

Result<bool> load_weights(const Model& model, const WeightTensors& tensors, ClassifierPolicy policy,
                          ModelState& state) {
  ENSURE(state.parameters.size() == model.parameter_count &&
             state.statistics.size() == model.statistic_count,
         "the state has the model's layout");
  TRY(check_names(model, tensors));
  const bool keeps_own =
      policy == ClassifierPolicy::kOwnIfClassesDiffer && has_other_classes(model, tensors);
  const std::size_t taken = keeps_own ? model.classifier_weight : model.parameters.size();
  Result<void> copied = copy_tensors(model.parameters, taken, tensors, state.parameters.span());
  if (copied.ok()) {
    copied =
        copy_tensors(model.statistics, model.statistics.size(), tensors, state.statistics.span());
  }
  if (!copied.ok()) {
    return std::move(copied).error();
  }
  return !keeps_own;
}

}  // namespace mayfly::nn
