#include "engine/state/starting_state.hpp"

#include <fmt/format.h>

#include "collectives/plan/exact_sum.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/state/initial_weights.hpp"

namespace mayfly::engine {
namespace {

std::optional<nn::LossScale> first_loss_scale(nn::Dtype dtype) {
  return dtype == nn::Dtype::kFp16 ? std::optional(nn::LossScale{}) : std::nullopt;
}

std::size_t exponents_of(const Job& job, const ReductionLayout& layout) {
  return job.exact() ? layout.blocks().block_count() : 0;
}

}  // namespace

Result<StartingState> state_of_checkpoint(const Job& job, const ReductionLayout& layout,
                                          const nn::CheckpointFiles& files,
                                          const std::string& path) {
  const Result<nn::CheckpointInfo> info = nn::decode_manifest(files.at(nn::kManifestFile));
  if (!info.ok()) {
    return info.error();
  }
  Result<nn::ModelState> decoded = nn::decode_checkpoint(job.model, files);
  if (!decoded.ok()) {
    return std::move(decoded).error();
  }
  const std::size_t exponents = exponents_of(job, layout);
  nn::ModelState state = std::move(decoded).value();
  if (state.committed == Step{0}) {  // imported weights: no step has chosen a reduction yet
    state.exponents.assign(exponents, collectives::kUnsetExponent);
  }
  if (state.exponents.size() != exponents) {
    return Error{Errc::kInvalidInput, fmt::format("{} was written with another --reduction", path)};
  }
  StartingState start;
  start.state = std::move(state);
  start.checkpoint = info.value().digest;
  start.is_foreign = info.value().fingerprint != job.fingerprint;
  const std::optional<nn::LossScale> scale = first_loss_scale(job.dtype);
  std::optional<nn::LossScale>& kept = start.state.loss_scale;
  if (!scale.has_value() && kept.has_value()) {  // computed in fp16 until now
    start.remark = fmt::format("the checkpoint's loss scale of 2^{} is dropped: dtype is {}",
                               kept->exponent, nn::name_of(job.dtype));
    kept.reset();
  } else if (scale.has_value() && !kept.has_value()) {  // and not until now
    start.remark =
        fmt::format("the checkpoint has no loss scale: in fp16 it begins at 2^{}", scale->exponent);
    kept = scale;
  }
  return start;
}

Result<StartingState> joining_state(const Job& job, const ReductionLayout& layout) {
  if (!job.config.resume.empty()) {
    const Result<LoadedCheckpoint> loaded = load_checkpoint(job.config.resume);
    return loaded.ok() ? state_of_checkpoint(job, layout, loaded.value().files, loaded.value().path)
                       : Result<StartingState>(loaded.error());
  }
  StartingState start;
  start.state =
      nn::make_undrawn_state(job.model, exponents_of(job, layout), collectives::kUnsetExponent);
  start.state.loss_scale = first_loss_scale(job.dtype);
  if (!job.initial_weights.has_value()) {
    return start;
  }
  nn::draw_weights(job.model, job.config.seed, start.state);  // some may not be in the file
  const Result<InitialWeights> weights =
      read_initial_weights(job.config.init_from, job.config.model);
  if (!weights.ok()) {
    return weights.error();
  }
  if (weights.value().digest() != *job.initial_weights) {
    return Error{Errc::kInvalidInput,
                 weights.value().path + " was changed while the job was starting"};
  }
  Result<std::string> remark = apply_initial_weights(job.model, weights.value(), start.state);
  if (!remark.ok()) {
    return std::move(remark).error();
  }
  start.remark = std::move(remark).value();
  return start;
}

Result<StartingState> starting_state(const Job& job, const ReductionLayout& layout) {
  Result<StartingState> start = joining_state(job, layout);
  if (start.ok()) {
    nn::draw_weights(job.model, job.config.seed, start.value().state);
  }
  return start;
}

}  // namespace mayfly::engine
