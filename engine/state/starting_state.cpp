#include "engine/state/starting_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/try_assign.hpp"
#include "collectives/plan/exact_sum.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "nn/weight_file.hpp"

namespace mayfly::engine {
namespace {

std::optional<nn::LossScale> first_loss_scale(nn::Dtype dtype) {
  return dtype == nn::Dtype::kFp16 ? std::optional(nn::LossScale{}) : std::nullopt;
}

std::size_t exponents_of(const Job& job, const ReductionLayout& layout) {
  return job.exact() ? layout.blocks().block_count() : 0;
}

Error about(const std::string& path, const Error& error) {
  return {error.code, path + ": " + error.detail};
}

Result<InitialWeights> from_checkpoint(const std::string& path, const std::string& model) {
  TRY_ASSIGN(LoadedCheckpoint checkpoint, load_intact_checkpoint(path));
  if (!checkpoint.passed_over.empty()) {
    log::warning(checkpoint.passed_over);
  }
  if (checkpoint.info.model != model) {
    return Error{Errc::kInvalidInput, fmt::format("init_from: checkpoint {} holds {}, not {}",
                                                  checkpoint.path, checkpoint.info.model, model)};
  }
  return InitialWeights{checkpoint.path, std::move(checkpoint.files[nn::kModelFile])};
}

/// A remark on changed settings that determine the order of samples; "" if none was changed since
/// the checkpoint. The position in that order is the number of steps times the global batch.
std::string samples_remark(const Job& job, const nn::CheckpointInfo& info, Step committed) {
  if (committed == Step{0}) {
    return {};
  }
  std::vector<std::string> others;
  for (const std::string name : {"data content", "global_batch", "seed"}) {
    const auto is_named = [&name](const auto& field) { return field.first == name; };
    const auto theirs = std::ranges::find_if(info.fingerprint, is_named);
    const auto ours = std::ranges::find_if(job.fingerprint, is_named);
    if (theirs != info.fingerprint.end() && ours != job.fingerprint.end() && *theirs != *ours) {
      others.push_back(name == "data content" ? "another data set"
                                              : fmt::format("{} {} (this job has {})", name,
                                                            theirs->second, ours->second));
    }
  }
  return others.empty() ? std::string()
                        : fmt::format(
                              "the checkpoint was written with {}: some samples are left out or "
                              "repeated in the epoch in which it continues",
                              fmt::join(others, " and "));
}

}  // namespace

Result<StartingState> state_of_checkpoint(const Job& job, const ReductionLayout& layout,
                                          const nn::CheckpointFiles& files,
                                          const std::string& path) {
  TRY_ASSIGN(const auto info, nn::decode_manifest(files.at(nn::kManifestFile)));
  TRY_ASSIGN(auto decoded, nn::decode_checkpoint(job.model, files));
  const std::size_t exponents = exponents_of(job, layout);
  nn::ModelState state = std::move(decoded);
  if (state.committed == Step{0}) {  // imported weights have no exponents of a reduction yet
    state.exponents.assign(exponents, collectives::kUnsetExponent);
  }
  if (state.exponents.size() != exponents) {
    return Error{Errc::kInvalidInput, fmt::format("{} was written with another --reduction", path)};
  }
  const bool is_legal = std::ranges::all_of(state.exponents, [](std::int32_t exponent) {
    return exponent == collectives::kUnsetExponent || collectives::is_legal_exponent(exponent);
  });
  if (!is_legal) {
    return Error{Errc::kCorrupt, fmt::format("{} has an exponent that no sum can have", path)};
  }
  StartingState start;
  start.state = std::move(state);
  start.checkpoint = info.digest;
  start.is_foreign = info.fingerprint != job.fingerprint;
  std::vector<std::string> remarks;
  if (std::string remark = samples_remark(job, info, start.state.committed); !remark.empty()) {
    remarks.push_back(std::move(remark));
  }
  const std::optional<nn::LossScale> scale = first_loss_scale(job.dtype);
  std::optional<nn::LossScale>& kept = start.state.loss_scale;
  if (!scale.has_value() && kept.has_value()) {  // the checkpoint's job used fp16
    remarks.push_back(fmt::format("the checkpoint's loss scale of 2^{} is dropped: dtype is {}",
                                  kept->exponent, nn::name_of(job.dtype)));
    kept.reset();
  } else if (scale.has_value() && !kept.has_value()) {  // the checkpoint's job did not use fp16
    remarks.push_back(fmt::format("the checkpoint has no loss scale: in fp16 it begins at 2^{}",
                                  scale->exponent));
    kept = scale;
  }
  start.remark = fmt::format("{}", fmt::join(remarks, "; "));
  return start;
}

StartingState undrawn_state(const Job& job, const ReductionLayout& layout) {
  StartingState start;
  start.state =
      nn::make_undrawn_state(job.model, exponents_of(job, layout), collectives::kUnsetExponent);
  start.state.loss_scale = first_loss_scale(job.dtype);
  return start;
}

Result<StartingState> joining_state(const Job& job, const ReductionLayout& layout) {
  if (!job.config.resume.empty()) {
    TRY_ASSIGN(const LoadedCheckpoint loaded, load_intact_checkpoint(job.config.resume));
    if (!loaded.passed_over.empty()) {
      log::warning(loaded.passed_over);
    }
    return state_of_checkpoint(job, layout, loaded.files, loaded.path);
  }
  StartingState start = undrawn_state(job, layout);
  if (!job.initial_weights.has_value()) {
    return start;
  }
  nn::draw_weights(job.model, job.config.seed, start.state);  // the file may lack the classifier
  TRY_ASSIGN(const auto weights, read_initial_weights(job.config.init_from, job.config.model));
  if (weights.digest() != *job.initial_weights) {
    return Error{Errc::kInvalidInput, weights.path + " was changed while the job was starting"};
  }
  TRY_ASSIGN(start.remark, apply_initial_weights(job.model, weights, start.state));
  return start;
}

Result<StartingState> starting_state(const Job& job, const ReductionLayout& layout) {
  Result<StartingState> start = joining_state(job, layout);
  if (start.ok()) {
    nn::draw_weights(job.model, job.config.seed, start.value().state);
  }
  return start;
}

TransferQuestion question_about(const StartingState& start) {
  TransferQuestion question;
  question.step = start.state.committed;
  question.has_state = start.checkpoint.has_value();
  question.is_foreign = start.is_foreign;
  question.digest = start.checkpoint.value_or(Digest{});
  return question;
}

Result<InitialWeights> read_initial_weights(const std::string& init_from,
                                            const std::string& model) {
  std::error_code failure;
  const auto status = std::filesystem::status(init_from, failure);
  if (!std::filesystem::exists(status)) {
    if (status.type() != std::filesystem::file_type::not_found) {
      return Error{Errc::kIo, "init_from: " + init_from + ": " + failure.message()};
    }
    return Error{Errc::kNotFound, "init_from: " + init_from + " does not exist"};
  }
  if (std::filesystem::is_directory(status)) {
    return from_checkpoint(init_from, model);
  }
  TRY_ASSIGN(auto content, read_file(init_from, kCheckpointFileBytesMax));
  return InitialWeights{init_from, std::move(content)};
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
