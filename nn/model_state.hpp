#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "nn/dtype.hpp"
#include "nn/model.hpp"

namespace mayfly::nn {

/// The replicated state of training: equal, bit for bit, on all members after every committed step.
/// Flat fp32 arrays in the layout of Model::parameters and Model::statistics.
struct ModelState {
  Step committed{};  ///< steps applied so far
  AlignedBuffer<float> parameters;
  AlignedBuffer<float> momentum;        ///< as long as parameters
  AlignedBuffer<float> statistics;      ///< running means and variances of batch norm
  std::vector<std::int32_t> exponents;  ///< of the exact sum's blocks; empty in fp32 reduction
  std::optional<LossScale> loss_scale;  ///< of the next step; only where activations are fp16
  /// False: a state of step 0 whose weights have not been generated yet; it must not be read.
  bool is_drawn = true;
};

/// Initial state: He-normal convolutions (fan-out, as torchvision), linear layer uniform in
/// +-1/sqrt(fan-in), scales 1, shifts 0, momentum 0, running mean 0 and variance 1. A pure function
/// of (model, seed), the same bits on every machine. `exponent_count` exponents are set to `unset`.
[[nodiscard]] ModelState make_initial_state(const Model& model, std::uint64_t seed,
                                            std::size_t exponent_count, std::int32_t unset);

/// The same without generating the weights, which is most of the work. For a worker that receives
/// another worker's state if the job is already running.
[[nodiscard]] ModelState make_undrawn_state(const Model& model, std::size_t exponent_count,
                                            std::int32_t unset);
/// Generates the weights of a state without them, as make_initial_state does; does nothing for any
/// other state.
void draw_weights(const Model& model, std::uint64_t seed, ModelState& state);

/// Hash of everything in the state, in declaration order. The state is drawn.
[[nodiscard]] Digest digest_of(const ModelState& state);

/// The size of the format in which a state is sent to a member that is behind, fixed for a given
/// model: a header of sizes, then the arrays, and in fp16 the loss scale.
[[nodiscard]] std::size_t packed_state_size(const ModelState& like);
/// Copies the bytes of that format from `first` on, as many as fit into `out`.
void pack_state_part(const ModelState& state, std::size_t first, std::span<std::byte> out);
/// kCorrupt if the bytes do not match the layout of `state`.
[[nodiscard]] Result<void> unpack_state(ByteSpan packed, ModelState& state);

}  // namespace mayfly::nn
