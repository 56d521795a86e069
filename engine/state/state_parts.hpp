#pragma once

// The hashes by which members compare their states (ADR 18). Inside every step's reduction they
// compare a hash of everything that determines the step's gradients (weights, exponents, loss
// scale) and of a slice of the rest, another slice in each step. So no result of wrong weights is
// ever committed, and wrong momentum or statistics are found within kRounds steps. If the hashes
// differ, each member hashes every part separately, which shows which member is wrong and where.
// Pure.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "nn/model.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

class StateParts {
 public:
  /// The number of steps in which all momentum and statistics are compared once.
  static constexpr std::uint64_t kRounds = 16;

  explicit StateParts(const nn::Model& model);

  /// The names of the parts in hashes(): tensors, their momentum, the exponents, and the loss
  /// scale, which only some states have.
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  /// The hash of each part of the state.
  [[nodiscard]] std::vector<std::uint64_t> hashes(const nn::ModelState& state) const;
  /// The hash of weights, exponents, loss scale and the slice of the rest that is due after
  /// state.committed steps.
  [[nodiscard]] static std::uint64_t turn_hash(const nn::ModelState& state);
  /// The slice of `elements` elements of momentum or statistics that turn_hash() covers after step
  /// `committed`.
  struct Slice {
    std::size_t first = 0;
    std::size_t count = 0;
  };
  [[nodiscard]] static Slice turn_slice(std::size_t elements, Step committed);
  /// The hash of all momentum and all statistics, which turn_hash() covers slice by slice.
  [[nodiscard]] static std::uint64_t rest_hash(const nn::ModelState& state);
  /// The hash that is compared when the whole state is compared, computed from the other two.
  [[nodiscard]] static std::uint64_t joined(std::uint64_t rest_hash, std::uint64_t turn_hash);

 private:
  std::vector<nn::TensorInfo> parameters_;
  std::vector<nn::TensorInfo> statistics_;
  std::vector<std::string> names_;
};

}  // namespace mayfly::engine
