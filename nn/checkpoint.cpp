#include "nn/checkpoint.hpp"

#include <array>
#include <boost/json.hpp>
#include <cstring>
#include <optional>

#include "base/check.hpp"
#include "nn/checkpoint_manifest.hpp"
#include "nn/safetensors.hpp"

namespace mayfly::nn {
namespace {

namespace json = boost::json;
using manifest::field_of;
using manifest::number_of;
using manifest::text_of;

constexpr const char* kExponents = "exponents";
constexpr const char* kLossScale = "loss_scale";
const std::string kMomentumPrefix = "momentum.";

using Tensors = std::map<std::string, TensorView>;

Error corrupt(const std::string& file, const std::string& why) {
  return {Errc::kCorrupt, file + ": " + why};
}

// ---- writing

NamedTensor float_tensor(const std::string& name, const TensorInfo& info,
                         std::span<const float> flat) {
  return {name, {"F32", info.shape, std::as_bytes(flat.subspan(info.offset, info.size))}};
}

Bytes encode_model_file(const Model& model, const ModelState& state) {
  std::vector<NamedTensor> tensors;
  for (const TensorInfo& info : model.parameters) {
    tensors.push_back(float_tensor(info.name, info, state.parameters.span()));
  }
  for (const TensorInfo& info : model.statistics) {
    tensors.push_back(float_tensor(info.name, info, state.statistics.span()));
  }
  return encode_safetensors(tensors);
}

Bytes encode_optimizer_file(const Model& model, const ModelState& state) {
  std::vector<NamedTensor> tensors;
  for (const TensorInfo& info : model.parameters) {
    tensors.push_back(float_tensor(kMomentumPrefix + info.name, info, state.momentum.span()));
  }
  if (!state.exponents.empty()) {
    const auto count = static_cast<std::int64_t>(state.exponents.size());
    tensors.push_back({kExponents, {"I32", {count}, std::as_bytes(std::span(state.exponents))}});
  }
  std::array<std::int32_t, 2> scale{};
  if (state.loss_scale.has_value()) {
    scale = {state.loss_scale->exponent, state.loss_scale->steps};
    tensors.push_back({kLossScale, {"I32", {2}, std::as_bytes(std::span(scale))}});
  }
  return encode_safetensors(tensors);
}

json::object file_entry(const Bytes& content) {
  return {{"bytes", content.size()}, {"xxh3", to_string(mayfly::digest_of(ByteSpan(content)))}};
}

// ---- reading

// The named file, after its size and hash were compared with the manifest.
Result<ByteSpan> checked_file(const CheckpointFiles& files, const json::value& manifest,
                              const char* name) {
  const auto found = files.find(name);
  if (found == files.end()) {
    return corrupt(name, "missing from the checkpoint");
  }
  const json::value* entries = field_of(manifest, "files");
  const json::value* entry = entries == nullptr ? nullptr : field_of(*entries, name);
  const auto bytes = entry == nullptr ? std::nullopt : number_of(*entry, "bytes");
  const auto hash = entry == nullptr ? std::nullopt : text_of(*entry, "xxh3");
  if (!bytes || !hash) {
    return corrupt(kManifestFile, std::string("says nothing about ") + name);
  }
  const Bytes& content = found->second;
  if (content.size() != *bytes) {
    return corrupt(name, std::to_string(*bytes) + " bytes expected, " +
                             std::to_string(content.size()) + " found; torn?");
  }
  if (const std::string actual = to_string(mayfly::digest_of(ByteSpan(content))); actual != *hash) {
    return corrupt(name, "hash " + *hash + " expected, " + actual + " found");
  }
  return ByteSpan(content);
}

Result<json::value> manifest_of(const CheckpointFiles& files) {
  const auto manifest = files.find(kManifestFile);
  return manifest == files.end() ? corrupt(kManifestFile, "missing from the checkpoint")
                                 : manifest::parse(manifest->second);
}

Result<void> copy_tensor(const Tensors& tensors, const std::string& name, const TensorInfo& info,
                         std::span<float> flat) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) {
    return Error{Errc::kInvalidInput,
                 "tensor " + name + " is missing; expected shape " + shape_text(info.shape)};
  }
  const TensorView& tensor = found->second;
  if (tensor.type != "F32" || tensor.shape != info.shape) {
    return Error{Errc::kInvalidInput, "tensor " + name + ": expected F32 " +
                                          shape_text(info.shape) + ", found " + tensor.type + ' ' +
                                          shape_text(tensor.shape)};
  }
  std::memcpy(flat.data() + info.offset, tensor.bytes.data(), tensor.bytes.size());
  return {};
}

Result<void> copy_tensors(const Tensors& tensors, const std::string& prefix,
                          const std::vector<TensorInfo>& infos, std::span<float> flat) {
  for (const TensorInfo& info : infos) {
    TRY(copy_tensor(tensors, prefix + info.name, info, flat));
  }
  return {};
}

Result<void> copy_exponents(const Tensors& tensors, std::vector<std::int32_t>& exponents) {
  const auto found = tensors.find(kExponents);
  if (found == tensors.end()) {
    return {};
  }
  const TensorView& tensor = found->second;
  if (tensor.type != "I32" || tensor.shape.size() != 1) {
    return Error{Errc::kInvalidInput,
                 std::string("tensor exponents: expected I32 of one dimension, found ") +
                     tensor.type + ' ' + shape_text(tensor.shape)};
  }
  exponents.resize(tensor.bytes.size() / sizeof(std::int32_t));
  if (!exponents.empty()) {
    std::memcpy(exponents.data(), tensor.bytes.data(), tensor.bytes.size());
  }
  return {};
}

Result<void> copy_loss_scale(const Tensors& tensors, std::optional<LossScale>& scale) {
  const auto found = tensors.find(kLossScale);
  if (found == tensors.end()) {
    return {};
  }
  const TensorView& tensor = found->second;
  std::array<std::int32_t, 2> numbers{};
  if (tensor.type != "I32" || tensor.bytes.size() != sizeof numbers) {
    return Error{Errc::kInvalidInput, std::string("tensor loss_scale: expected I32 [2], found ") +
                                          tensor.type + ' ' + shape_text(tensor.shape)};
  }
  std::memcpy(numbers.data(), tensor.bytes.data(), sizeof numbers);
  scale = LossScale{numbers[0], numbers[1]};
  if (!scale->is_valid()) {
    return Error{Errc::kInvalidInput, "tensor loss_scale: 2^" + std::to_string(numbers[0]) +
                                          " for " + std::to_string(numbers[1]) +
                                          " steps is none that a job can have"};
  }
  return {};
}

Result<Tensors> read_tensors(const CheckpointFiles& files, const json::value& manifest,
                             const char* name) {
  const Result<ByteSpan> content = checked_file(files, manifest, name);
  if (!content.ok()) {
    return content.error();
  }
  Result<Tensors> tensors = decode_safetensors(content.value());
  if (!tensors.ok()) {
    return corrupt(name, tensors.error().detail);
  }
  return tensors;
}

// All tensors of the model's layout and no others: an additional tensor means another network.
Result<void> fill_state(const Model& model, const Tensors& model_tensors,
                        const Tensors& optimizer_tensors, ModelState& state) {
  Result<void> done = copy_tensors(model_tensors, "", model.parameters, state.parameters.span());
  if (done.ok()) {
    done = copy_tensors(model_tensors, "", model.statistics, state.statistics.span());
  }
  if (done.ok()) {
    done =
        copy_tensors(optimizer_tensors, kMomentumPrefix, model.parameters, state.momentum.span());
  }
  if (done.ok()) {
    done = copy_exponents(optimizer_tensors, state.exponents);
  }
  if (done.ok()) {
    done = copy_loss_scale(optimizer_tensors, state.loss_scale);
  }
  const std::size_t expected = model.parameters.size() + model.statistics.size();
  if (done.ok() && model_tensors.size() != expected) {
    return Error{Errc::kInvalidInput, std::string(kModelFile) + " has " +
                                          std::to_string(model_tensors.size()) + " tensors, " +
                                          model.name + " has " + std::to_string(expected)};
  }
  return done;
}

}  // namespace

CheckpointFiles encode_checkpoint(
    const Model& model, const ModelState& state, std::uint64_t seed,
    const std::vector<std::pair<std::string, std::string>>& fingerprint) {
  CheckpointFiles files;
  files[kModelFile] = encode_model_file(model, state);
  files[kOptimizerFile] = encode_optimizer_file(model, state);
  json::object entries;
  for (const auto& [name, content] : files) {
    entries[name] = file_entry(content);
  }
  json::object prints;
  for (const auto& [key, text] : fingerprint) {
    ENSURE(!prints.contains(key), "a fingerprint names each fact once");
    prints[key] = text;
  }
  const std::string text = manifest::write({{"model", model.name},
                                            {"classes", model.classes},
                                            {"step", value(state.committed)},
                                            {"seed", seed},
                                            {"digest", to_string(digest_of(state))},
                                            {"files", std::move(entries)},
                                            {"fingerprint", std::move(prints)}});
  const auto bytes = std::as_bytes(std::span(text));
  files[kManifestFile] = Bytes(bytes.begin(), bytes.end());
  return files;
}

Result<CheckpointInfo> decode_manifest(ByteSpan manifest) {
  const Result<json::value> parsed = manifest::parse(manifest);
  return parsed.ok() ? manifest::info_from(parsed.value()) : Result<CheckpointInfo>(parsed.error());
}

Result<ByteSpan> checked_model_file(const CheckpointFiles& files) {
  const Result<json::value> manifest = manifest_of(files);
  return manifest.ok() ? checked_file(files, manifest.value(), kModelFile)
                       : Result<ByteSpan>(manifest.error());
}

Result<ModelState> decode_checkpoint(const Model& model, const CheckpointFiles& files) {
  const Result<json::value> manifest = manifest_of(files);
  if (!manifest.ok()) {
    return manifest.error();
  }
  const Result<CheckpointInfo> info = manifest::info_from(manifest.value());
  if (!info.ok()) {
    return info.error();
  }
  if (info.value().model != model.name || info.value().classes != model.classes) {
    return Error{Errc::kInvalidInput, "the checkpoint holds " + info.value().model + " with " +
                                          std::to_string(info.value().classes) +
                                          " classes, expected " + model.name + " with " +
                                          std::to_string(model.classes)};
  }
  const Result<Tensors> model_tensors = read_tensors(files, manifest.value(), kModelFile);
  if (!model_tensors.ok()) {
    return model_tensors.error();
  }
  const Result<Tensors> optimizer_tensors = read_tensors(files, manifest.value(), kOptimizerFile);
  if (!optimizer_tensors.ok()) {
    return optimizer_tensors.error();
  }
  ModelState state;
  state.committed = info.value().committed;
  state.parameters = AlignedBuffer<float>(model.parameter_count);
  state.momentum = AlignedBuffer<float>(model.parameter_count);
  state.statistics = AlignedBuffer<float>(model.statistic_count);
  if (Result<void> filled =
          fill_state(model, model_tensors.value(), optimizer_tensors.value(), state);
      !filled.ok()) {
    return std::move(filled).error();
  }
  if (const Digest actual = digest_of(state); actual != info.value().digest) {
    return corrupt(kManifestFile, "digest " + to_string(info.value().digest) +
                                      " expected, the state has " + to_string(actual));
  }
  return state;
}

}  // namespace mayfly::nn
