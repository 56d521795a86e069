#pragma once

// Private to nn/cuda: weights, momentum and running statistics in the memory of a GPU. They are
// copied from the host when the host's version is another one, and are updated on the device if the
// momentum is there.
//
// The engine's stream keeps loads, updates and microbatches in order. The host fetches over a
// separate stream, after the last update, so it does not wait for microbatches.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/result.hpp"
#include "nn/cuda/cuda_handles.hpp"
#include "nn/device_engine.hpp"

namespace mayfly::nn::cuda {

/// The places of the state in the device's memory.
struct StatePlaces {
  std::span<float> parameters;
  std::span<float> statistics;
  std::span<float> gradient;  ///< as long as the parameters
  std::span<float> momentum;  ///< as long as the parameters; empty: weights come from the host
};

class ResidentState final : public DeviceOptimizer {
 public:
  /// On the engine's thread, as all other functions except fetch(). `packing` converts parameters
  /// to the layout that convolutions read. `compute` outlives the state.
  static Result<ResidentState> make(int device, cudaStream_t compute, const StatePlaces& places,
                                    GraphProgram packing);

  /// Copies weights and statistics to the device unless it has this version.
  void load(const Weights& weights);
  [[nodiscard]] bool can_update() const { return !places_.momentum.empty(); }

  [[nodiscard]] float* mean_gradient() override { return places_.gradient.data(); }
  void update(const DeviceUpdate& update) override;
  void keep(std::uint64_t from, std::uint64_t to) override;
  void fetch(DevicePart part, std::size_t first, std::span<float> to) override;

 private:
  ResidentState(int device, cudaStream_t compute, const StatePlaces& places, GraphProgram packing);
  void upload(std::span<const float> from, std::span<float> to);
  void pack();

  int device_;
  cudaStream_t compute_;
  StatePlaces places_;
  GraphProgram packing_;
  OwnedStream fetching_;
  OwnedEvent updated_;
  std::optional<std::uint64_t> version_;           // of parameters and statistics
  std::optional<std::uint64_t> momentum_version_;  // that of the parameters it belongs to
};

}  // namespace mayfly::nn::cuda
