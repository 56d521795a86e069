#include "engine/state/state_parts.hpp"

#include <span>

#include "base/digest.hpp"
#include "base/random.hpp"

namespace mayfly::engine {
namespace {

std::uint64_t hash_of(std::span<const float> values) {
  return digest_of(std::as_bytes(values)).low;
}

std::uint64_t hash_of(const std::vector<std::int32_t>& values) {
  return digest_of(std::as_bytes(std::span(values))).low;
}

std::uint64_t hash_of(const nn::LossScale& scale) {
  return mix64(static_cast<std::uint64_t>(scale.exponent) << 32 |
               static_cast<std::uint32_t>(scale.steps));
}

/// The slice of `all` that is compared after this step.
std::span<const float> slice(std::span<const float> all, Step committed) {
  const StateParts::Slice turn = StateParts::turn_slice(all.size(), committed);
  return all.subspan(turn.first, turn.count);
}

}  // namespace

StateParts::StateParts(const nn::Model& model)
    : parameters_(model.parameters), statistics_(model.statistics) {
  for (const nn::TensorInfo& tensor : parameters_) {
    names_.push_back(tensor.name);
  }
  for (const nn::TensorInfo& tensor : parameters_) {
    names_.push_back(tensor.name + " (momentum)");
  }
  for (const nn::TensorInfo& tensor : statistics_) {
    names_.push_back(tensor.name);
  }
  names_.emplace_back("exponents");
  names_.emplace_back("loss scale");
}

std::vector<std::uint64_t> StateParts::hashes(const nn::ModelState& state) const {
  std::vector<std::uint64_t> hashes;
  for (const nn::TensorInfo& tensor : parameters_) {
    hashes.push_back(hash_of(state.parameters.span().subspan(tensor.offset, tensor.size)));
  }
  for (const nn::TensorInfo& tensor : parameters_) {
    hashes.push_back(hash_of(state.momentum.span().subspan(tensor.offset, tensor.size)));
  }
  for (const nn::TensorInfo& tensor : statistics_) {
    hashes.push_back(hash_of(state.statistics.span().subspan(tensor.offset, tensor.size)));
  }
  hashes.push_back(hash_of(state.exponents));
  if (state.loss_scale.has_value()) {
    hashes.push_back(hash_of(*state.loss_scale));
  }
  return hashes;
}

StateParts::Slice StateParts::turn_slice(std::size_t elements, Step committed) {
  const std::uint64_t turn = value(committed) % kRounds;
  const std::size_t first = elements * turn / kRounds;
  return {first, elements * (turn + 1) / kRounds - first};
}

std::uint64_t StateParts::turn_hash(const nn::ModelState& state) {
  std::uint64_t hash = mix64(value(state.committed));
  for (const std::uint64_t part : {hash_of(state.parameters.span()), hash_of(state.exponents),
                                   hash_of(slice(state.momentum.span(), state.committed)),
                                   hash_of(slice(state.statistics.span(), state.committed))}) {
    hash = mix64(hash ^ part);
  }
  if (state.loss_scale.has_value()) {
    hash = mix64(hash ^ hash_of(*state.loss_scale));
  }
  return hash;
}

std::uint64_t StateParts::rest_hash(const nn::ModelState& state) {
  return mix64(hash_of(state.momentum.span()) ^ mix64(hash_of(state.statistics.span())));
}

std::uint64_t StateParts::joined(std::uint64_t rest_hash, std::uint64_t turn_hash) {
  return mix64(rest_hash ^ mix64(turn_hash));
}

}  // namespace mayfly::engine
