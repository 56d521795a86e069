#pragma once

// A state in "device" memory, which is separate ordinary memory. It is loaded, updated by the
// host's version of the GPU's kernel, and fetched, as by nn/cuda/resident_state on a GPU.

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <vector>

#include "base/check.hpp"
#include "nn/cuda/kernels/kernels.hpp"
#include "nn/device_engine.hpp"

namespace mayfly::nn::cuda {

class HostState final : public DeviceOptimizer {
 public:
  /// `gradient` outlives it.
  explicit HostState(std::span<float> gradient) : gradient_(gradient) {}

  /// Loads the weights if the device has another version; returns them in device memory.
  Weights loaded(const Weights& weights) {
    if (version_ != weights.version) {
      take(weights.parameters, parameters_);
      take(weights.statistics, statistics_);
      version_ = weights.version;
    }
    return {parameters_, statistics_, weights.version};
  }

  float* mean_gradient() override { return gradient_.data(); }

  void update(const DeviceUpdate& update) override {
    if (version_ != update.weights.version) {
      take(update.weights.parameters, parameters_);
    }
    if (momentum_version_ != update.weights.version) {
      take(update.momentum, momentum_);
    }
    const int failed = host_kernels().sgd_update(update.options, update.learning_rate,
                                                 gradient_.data(), parameters_.data(),
                                                 momentum_.data(), parameters_.size(), nullptr);
    ENSURE(failed == 0, "any number of elements can be updated");
    take(update.weights.statistics, statistics_);
    version_ = update.version;
    momentum_version_ = update.version;
    flip_if_asked();
  }

  void keep(std::uint64_t from, std::uint64_t to) override {
    for (std::optional<std::uint64_t>* version : {&version_, &momentum_version_}) {
      *version = *version == from ? std::optional(to) : *version;
    }
  }

  void fetch(DevicePart part, std::size_t first, std::span<float> to) override {
    const std::vector<float>& from = part == DevicePart::kParameters ? parameters_ : momentum_;
    ENSURE(first + to.size() <= from.size(), "a part of what is there");
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(first), to.size(), to.begin());
  }

 private:
  static void take(std::span<const float> from, std::vector<float>& to) {
    to.assign(from.begin(), from.end());
  }

  void flip_if_asked() {
    constexpr int kHealthyUpdates = 15;
    const char* const path = std::getenv("REHEARSAL_GPU_FLIPS");
    if (path != nullptr && ++updates_ > kHealthyUpdates && ::unlink(path) == 0) {
      parameters_[parameters_.size() / 2] *= 2;
    }
  }

  std::span<float> gradient_;
  int updates_ = 0;
  std::vector<float> parameters_, statistics_, momentum_;
  std::optional<std::uint64_t> version_, momentum_version_;
};

}  // namespace mayfly::nn::cuda
