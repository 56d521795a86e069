#pragma once

// Exchange of weights with PyTorch: one safetensors file with the entries of a state_dict, under
// torchvision's names (for the CIFAR networks, which torchvision lacks, names in the same style).
// Pure: bytes in, bytes out.

#include <map>
#include <optional>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "nn/model.hpp"
#include "nn/model_state.hpp"
#include "nn/safetensors.hpp"

namespace mayfly::nn {

/// All entries that `load_state_dict(strict=True)` requires: parameters and running statistics as
/// F32 and, for each norm, num_batches_tracked (I64 scalar, the number of committed steps).
[[nodiscard]] Bytes encode_weight_file(const Model& model, const ModelState& state);

/// The tensors of a file under Mayfly's names. The views point into the file.
using WeightTensors = std::map<std::string, TensorView>;

/// Reads a weight file that PyTorch or Mayfly wrote. The prefix "module." is removed, "linear." is
/// accepted for the classifier "fc.", and num_batches_tracked is ignored, because nothing depends
/// on it. kCorrupt as for decode_safetensors; kInvalidInput if two tensors get the same name.
[[nodiscard]] Result<WeightTensors> read_weight_file(ByteSpan file);

/// The class count of the file's classifier; nothing if it has none.
[[nodiscard]] std::optional<int> classes_of(const WeightTensors& tensors);

enum class ClassifierPolicy : std::uint8_t {
  kMustFit,
  kOwnIfClassesDiffer  ///< for fine-tuning: the state's own is kept if the class counts differ
};

/// Copies the tensors (F32, F16 or BF16) into the parameters and statistics of `state`, which has
/// the model's layout; momentum, step and exponents stay. Returns whether the classifier was
/// copied. kInvalidInput with the first tensor that is unknown (the nearest name is suggested),
/// missing, of another shape or type (expected and actual), not finite, or a negative variance.
/// After an error the state must not be used.
[[nodiscard]] Result<bool> load_weights(const Model& model, const WeightTensors& tensors,
                                        ClassifierPolicy policy, ModelState& state);

}  // namespace mayfly::nn
