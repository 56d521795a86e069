#pragma once

// Weights for and from PyTorch: one safetensors file with the entries of a state_dict, under
// torchvision's names (for the CIFAR networks, which torchvision lacks, in the same style).
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

/// Everything that `load_state_dict(strict=True)` asks for: parameters and running statistics as
/// F32 and, for each norm, num_batches_tracked (I64 scalar, the number of committed steps).
[[nodiscard]] Bytes encode_weight_file(const Model& model, const ModelState& state);

/// The tensors of a file under our names. The views point into the file.
using WeightTensors = std::map<std::string, TensorView>;

/// Reads a weight file, whoever wrote it: the prefix "module." falls away, "linear." is the
/// classifier "fc.", and num_batches_tracked is left out, because nothing here depends on it.
/// kCorrupt as decode_safetensors; kInvalidInput if two tensors come to the same name.
[[nodiscard]] Result<WeightTensors> read_weight_file(ByteSpan file);

/// The class count of the file's classifier; nothing if it has none.
[[nodiscard]] std::optional<int> classes_of(const WeightTensors& tensors);

enum class ClassifierPolicy : std::uint8_t {
  kMustFit,
  kOwnIfClassesDiffer  ///< fine-tuning: of another class count it is left as it is in the state
};

/// Copies the tensors (F32, F16 or BF16) into the parameters and statistics of `state`, which has
/// the model's layout; momentum, step and exponents stay. Returns whether the classifier was
/// copied. kInvalidInput, naming the first tensor of trouble: one that the model does not have (the
/// nearest name is suggested), one that is missing, another shape or type (expected and found), a
/// value that is not finite, a negative variance. After an error the state is good for nothing.
[[nodiscard]] Result<bool> load_weights(const Model& model, const WeightTensors& tensors,
                                        ClassifierPolicy policy, ModelState& state);

}  // namespace mayfly::nn
