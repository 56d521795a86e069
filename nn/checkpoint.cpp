#include "nn/checkpoint.hpp"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/check.hpp"
#include "base/digest.hpp"
#include "base/own_hash.hpp"
#include "base/try_assign.hpp"
#include "nn/safetensors.hpp"

namespace mayfly::nn {
namespace {

namespace json = boost::json;

constexpr const char* kExponents = "exponents";
constexpr const char* kLossScale = "loss_scale";
const std::string kMomentumPrefix = "momentum.";

using Tensors = std::map<std::string, TensorView>;

Error corrupt(const std::string& file, const std::string& why) {
  return {Errc::kCorrupt, file + ": " + why};
}

// ---- the manifest

constexpr const char* kFormat = "mayfly-checkpoint";
constexpr std::uint64_t kVersion = 1;
constexpr std::size_t kManifestBytesMax = std::size_t{1} << 20;
constexpr const char* kOwnHash = "manifest_xxh3";  // the last field: hash of everything before it

/// A manifest of an earlier build has no hash. A flipped bit cannot make a manifest look like one
/// of these: a damaged field name would be an unknown field, which is rejected.
Result<void> check_own_hash(std::string_view text, const json::object& fields) {
  if (!fields.contains(kOwnHash)) {
    constexpr std::array<std::string_view, 9> kEarlier = {
        "format", "version", "model", "classes", "step", "seed", "digest", "files", "fingerprint"};
    for (const auto& [name, ignored] : fields) {
      if (std::find(kEarlier.begin(), kEarlier.end(), std::string_view(name)) == kEarlier.end()) {
        return corrupt(kManifestFile, "holds the unknown field " + json::serialize(name));
      }
    }
    return {};
  }
  if (!fits_own_hash(text, kOwnHash)) {
    return corrupt(kManifestFile, "was changed after it was written: its hash does not fit");
  }
  return {};
}

/// The value of a field; null, or nothing, if `object` is not an object, has no such field, or the
/// field has another type.
const json::value* field_of(const json::value& object, const char* name) {
  const json::object* fields = object.if_object();
  return fields == nullptr ? nullptr : fields->if_contains(name);
}

std::optional<std::uint64_t> number_of(const json::value& object, const char* name) {
  const json::value* field = field_of(object, name);
  if (field == nullptr) {
    return std::nullopt;
  }
  if (const std::uint64_t* number = field->if_uint64()) {
    return *number;
  }
  if (const std::int64_t* number = field->if_int64(); number != nullptr && *number >= 0) {
    return static_cast<std::uint64_t>(*number);
  }
  return std::nullopt;
}

std::optional<std::string> text_of(const json::value& object, const char* name) {
  const json::value* field = field_of(object, name);
  if (field == nullptr || !field->is_string()) {
    return std::nullopt;
  }
  return std::string(field->get_string());
}

/// The text of a manifest: the format's name and version, these fields, and the hash of all of it.
std::string manifest_text(json::object fields) {
  json::object whole = {{"format", kFormat}, {"version", kVersion}};
  for (json::key_value_pair& field : fields) {
    whole[field.key()] = std::move(field.value());
  }
  return with_own_hash(json::serialize(whole), kOwnHash);
}

/// Parses the text and checks its hash. kCorrupt if it is truncated, modified or not a manifest,
/// kUnsupported for another version.
Result<json::value> parse_manifest(ByteSpan manifest) {
  if (manifest.size() > kManifestBytesMax) {
    return corrupt(kManifestFile, "larger than 1 MiB");
  }
  json::parse_options limits;
  limits.max_depth = 4;
  boost::system::error_code failure;
  const std::string_view text(reinterpret_cast<const char*>(manifest.data()), manifest.size());
  json::value parsed = json::parse({text.data(), text.size()}, failure, {}, limits);
  if (failure) {
    return corrupt(kManifestFile, "not JSON (" + failure.message() + "); torn?");
  }
  if (text_of(parsed, "format") != kFormat) {
    return corrupt(kManifestFile, "not the manifest of a Mayfly checkpoint");
  }
  if (const auto version = number_of(parsed, "version"); version != kVersion) {
    return Error{Errc::kUnsupported,
                 std::string(kManifestFile) + ": format version " +
                     (version ? std::to_string(*version) : std::string("missing")) +
                     "; this build reads version " + std::to_string(kVersion)};
  }
  TRY(check_own_hash(text, parsed.get_object()));
  return parsed;
}

/// kCorrupt names the missing or wrong field.
Result<CheckpointInfo> info_from(const json::value& manifest) {
  const auto model = text_of(manifest, "model");
  const auto classes = number_of(manifest, "classes");
  const auto step = number_of(manifest, "step");
  const auto seed = number_of(manifest, "seed");
  const auto digest = digest_in(text_of(manifest, "digest").value_or(""));
  if (!model || !classes || *classes > INT32_MAX || !step || !seed || !digest) {
    return corrupt(kManifestFile, "model, classes, step, seed or digest is missing or wrong");
  }
  const json::value* fingerprint = field_of(manifest, "fingerprint");
  if (fingerprint == nullptr || !fingerprint->is_object()) {
    return corrupt(kManifestFile, "the fingerprint is missing");
  }
  CheckpointInfo info{*model, static_cast<int>(*classes), Step{*step}, *seed, *digest, {}};
  for (const auto& [key, text] : fingerprint->get_object()) {
    if (!text.is_string()) {
      return corrupt(kManifestFile, "the fingerprint holds something else than text");
    }
    info.fingerprint.emplace_back(key, text.get_string());
  }
  return info;
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
                                 : parse_manifest(manifest->second);
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
  TRY_ASSIGN(const auto content, checked_file(files, manifest, name));
  Result<Tensors> tensors = decode_safetensors(content);
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

CheckpointFiles with_manifest(CheckpointFiles files, const CheckpointInfo& info) {
  json::object entries;
  for (const auto& [name, content] : files) {
    entries[name] = file_entry(content);
  }
  json::object prints;
  for (const auto& [key, text] : info.fingerprint) {
    ENSURE(!prints.contains(key), "a fingerprint names each fact once");
    prints[key] = text;
  }
  const std::string text = manifest_text({{"model", info.model},
                                          {"classes", info.classes},
                                          {"step", value(info.committed)},
                                          {"seed", info.seed},
                                          {"digest", to_string(info.digest)},
                                          {"files", std::move(entries)},
                                          {"fingerprint", std::move(prints)}});
  const auto bytes = std::as_bytes(std::span(text));
  files[kManifestFile] = Bytes(bytes.begin(), bytes.end());
  return files;
}

CheckpointFiles encode_checkpoint(
    const Model& model, const ModelState& state, std::uint64_t seed,
    const std::vector<std::pair<std::string, std::string>>& fingerprint) {
  CheckpointFiles files;
  files[kModelFile] = encode_model_file(model, state);
  files[kOptimizerFile] = encode_optimizer_file(model, state);
  return with_manifest(std::move(files), {model.name, model.classes, state.committed, seed,
                                          digest_of(state), fingerprint});
}

Result<CheckpointInfo> check_files(const CheckpointFiles& files) {
  TRY_ASSIGN(const auto manifest, manifest_of(files));
  for (const char* name : {kModelFile, kOptimizerFile}) {
    const Result<ByteSpan> checked = checked_file(files, manifest, name);
    if (!checked.ok()) {
      return checked.error();
    }
  }
  return info_from(manifest);
}

Result<CheckpointInfo> decode_manifest(ByteSpan manifest) {
  const Result<json::value> parsed = parse_manifest(manifest);
  return parsed.ok() ? info_from(parsed.value()) : Result<CheckpointInfo>(parsed.error());
}

Result<ModelState> decode_checkpoint(const Model& model, const CheckpointFiles& files) {
  TRY_ASSIGN(const auto manifest, manifest_of(files));
  TRY_ASSIGN(const auto info, info_from(manifest));
  if (info.model != model.name || info.classes != model.classes) {
    return Error{Errc::kInvalidInput, "the checkpoint holds " + info.model + " with " +
                                          std::to_string(info.classes) + " classes, expected " +
                                          model.name + " with " + std::to_string(model.classes)};
  }
  TRY_ASSIGN(const auto model_tensors, read_tensors(files, manifest, kModelFile));
  TRY_ASSIGN(const auto optimizer_tensors, read_tensors(files, manifest, kOptimizerFile));
  ModelState state;
  state.committed = info.committed;
  state.parameters = AlignedBuffer<float>(model.parameter_count);
  state.momentum = AlignedBuffer<float>(model.parameter_count);
  state.statistics = AlignedBuffer<float>(model.statistic_count);
  TRY(fill_state(model, model_tensors, optimizer_tensors, state));
  if (const Digest actual = digest_of(state); actual != info.digest) {
    return corrupt(kManifestFile, "digest " + to_string(info.digest) + " expected, the state has " +
                                      to_string(actual));
  }
  return state;
}

}  // namespace mayfly::nn
