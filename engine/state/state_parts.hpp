#pragma once

// How members compare their states: inside every step's reduction a hash of what the step's
// gradients are made of (weights, exponents, loss scale) and, in turn, of a slice of the rest; so
// nothing that was computed from wrong weights is ever committed, and wrong momentum or statistics
// are found within kRounds steps. If the hashes differ, each member hashes every part by itself,
// which tells who is wrong and where.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "nn/model.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

class StateParts {
 public:
  /// Steps in which the momentum and the statistics are covered once.
  static constexpr std::uint64_t kRounds = 16;

  explicit StateParts(const nn::Model& model);

  /// What each of hashes() is of: tensors by name, their momentum, the exponents, and the loss
  /// scale, which only some states have.
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  /// Of the whole state, part by part.
  [[nodiscard]] std::vector<std::uint64_t> hashes(const nn::ModelState& state) const;
  /// Of weights, exponents, loss scale and the slice of the rest whose turn it is after
  /// state.committed steps.
  [[nodiscard]] static std::uint64_t turn_hash(const nn::ModelState& state);
  /// Of so many elements of momentum or statistics, those whose turn that is.
  struct Slice {
    std::size_t first = 0;
    std::size_t count = 0;
  };
  [[nodiscard]] static Slice turn_slice(std::size_t elements, Step committed);
  /// Of all momentum and all statistics, which turn_hash() looks at slice by slice.
  [[nodiscard]] static std::uint64_t rest_hash(const nn::ModelState& state);
  /// What is compared when the whole state is: nothing of any size is read twice.
  [[nodiscard]] static std::uint64_t joined(std::uint64_t rest_hash, std::uint64_t turn_hash);

 private:
  std::vector<nn::TensorInfo> parameters_;
  std::vector<nn::TensorInfo> statistics_;
  std::vector<std::string> names_;
};

}  // namespace mayfly::engine
