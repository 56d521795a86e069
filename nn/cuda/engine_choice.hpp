#pragma once

// How an engine table is made: engines for one convolution are timed in turns, their results are
// compared, and the fastest right one is taken. What touches a device is behind EngineTrial, all
// else is pure.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "nn/cuda/engine_table.hpp"

namespace mayfly::nn::cuda {

/// How long one engine took for a convolution, and whether its result can be right.
struct EngineTiming {
  EngineName engine;
  std::vector<double> microseconds;  ///< one per round, at least one
  bool agrees = true;                ///< with the first engine's result
};

/// The choice from timings, in the order of cuDNN's offers, at least one. The first stays unless
/// another that agrees with it is faster by more than three hundredths (median): so much is noise.
[[nodiscard]] EngineEntry fastest_of(std::span<const EngineTiming> timings);

/// What an engine has computed, as far as it is compared.
struct TrialResult {
  std::vector<float> elements;          ///< of what the pass writes
  std::vector<float> per_channel = {};  ///< of a fused pass: what follows from its sums
};

/// Whether two engines can both be right, from the same elements of their results: no element is
/// further from the other's than rounding explains, measured by the largest of `first`'s; and so,
/// more narrowly, the numbers per channel. What is no number agrees with nothing.
[[nodiscard]] bool agree(const TrialResult& first, const TrialResult& other, Dtype dtype);

/// One convolution with fixed inputs, and the engines that may compute it, in the order of cuDNN's
/// offers. Of a fused pass the first is EngineName::kUnfused: the plain convolution and our
/// kernels.
class EngineTrial {
 public:
  virtual ~EngineTrial() = default;

  [[nodiscard]] virtual std::vector<EngineName> engines() const = 0;
  /// Some elements of what engine number `engine` computes, always the same ones; where it would
  /// write nothing they are no numbers. kUnsupported if the engine refuses to run.
  [[nodiscard]] virtual Result<TrialResult> result(std::size_t engine) = 0;
  /// How long one run of it takes now.
  [[nodiscard]] virtual Result<double> microseconds(std::size_t engine) = 0;
};

/// Compares all engines' results with the first's, then times each once per round, one after the
/// other, so that a clock that changes meanwhile changes all. An engine that refuses to run is left
/// out; if the first does, that is an error, and so is anything that goes wrong later.
[[nodiscard]] Result<std::vector<EngineTiming>> time_in_turns(EngineTrial& trial,
                                                              std::uint32_t rounds, Dtype dtype);

/// What is asked of a device.
struct EngineTimingRequest {
  int device = 0;  ///< as an EngineRequest's
  std::uint32_t rounds = 5;
  std::size_t engines_max = 16;  ///< of cuDNN's offers per convolution
};

/// Takes what was measured of one convolution; false: no more is wanted.
using EngineTimingSink = std::function<bool(const ConvKey&, std::span<const EngineTiming>)>;
/// Makes the trial of a convolution; fails as a device does.
using TrialMaker = std::function<Result<std::unique_ptr<EngineTrial>>(const ConvKey&)>;

/// One convolution after the other, each with its own trial, which is gone before the next is made.
[[nodiscard]] Result<void> time_each(const std::set<ConvKey>& convolutions, std::uint32_t rounds,
                                     const TrialMaker& make, const EngineTimingSink& take);

}  // namespace mayfly::nn::cuda
