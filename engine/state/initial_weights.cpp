#include "engine/state/initial_weights.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "base/file.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "nn/weight_file.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kWeightsBytesMax = std::size_t{4} << 30;

Error about(const std::string& path, const Error& error) {
  return {error.code, path + ": " + error.detail};
}

Result<InitialWeights> from_checkpoint(const std::string& path, const std::string& model) {
  Result<LoadedCheckpoint> loaded = load_checkpoint(path);
  if (!loaded.ok()) {
    return std::move(loaded).error();
  }
  LoadedCheckpoint& checkpoint = loaded.value();
  if (checkpoint.info.model != model) {
    return Error{Errc::kInvalidInput, fmt::format("init_from: checkpoint {} holds {}, not {}",
                                                  checkpoint.path, checkpoint.info.model, model)};
  }
  if (Result<ByteSpan> file = nn::checked_model_file(checkpoint.files); !file.ok()) {
    return about("checkpoint " + checkpoint.path, file.error());
  }
  return InitialWeights{checkpoint.path, std::move(checkpoint.files[nn::kModelFile])};
}

}  // namespace

Result<InitialWeights> read_initial_weights(const std::string& init_from,
                                            const std::string& model) {
  std::error_code failure;
  const auto status = std::filesystem::status(init_from, failure);
  if (!std::filesystem::exists(status)) {
    return Error{Errc::kNotFound, "init_from: " + init_from + " does not exist"};
  }
  if (std::filesystem::is_directory(status)) {
    return from_checkpoint(init_from, model);
  }
  Result<Bytes> content = read_file(init_from, kWeightsBytesMax);
  if (!content.ok()) {
    return std::move(content).error();
  }
  return InitialWeights{init_from, std::move(content).value()};
}

Result<std::string> apply_initial_weights(const nn::Model& model, const InitialWeights& weights,
                                          nn::ModelState& state) {
  const Result<nn::WeightTensors> tensors = nn::read_weight_file(weights.content);
  if (!tensors.ok()) {
    return about(weights.path, tensors.error());
  }
  const Result<bool> took_classifier =
      nn::load_weights(model, tensors.value(), nn::ClassifierPolicy::kOwnIfClassesDiffer, state);
  if (!took_classifier.ok()) {
    return about(weights.path, took_classifier.error());
  }
  if (took_classifier.value()) {
    return fmt::format("weights and statistics of {} loaded", weights.path);
  }
  return fmt::format(
      "weights and statistics of {} loaded except the classifier: it has {} classes there and {} "
      "here, so it starts fresh",
      weights.path, nn::classes_of(tensors.value()).value_or(0), model.classes);
}

}  // namespace mayfly::engine
