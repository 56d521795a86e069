#include "nn/cuda/resident_state.hpp"

#include <utility>

#include "base/check.hpp"
#include "base/gpu_facts.hpp"
#include "base/try_assign.hpp"
#include "nn/cuda/kernels/kernels.hpp"

namespace mayfly::nn::cuda {

ResidentState::ResidentState(int device, cudaStream_t compute, const StatePlaces& places,
                             GraphProgram packing)
    : device_(device), compute_(compute), places_(places), packing_(std::move(packing)) {}

Result<ResidentState> ResidentState::make(int device, cudaStream_t compute,
                                          const StatePlaces& places, GraphProgram packing) {
  ENSURE(places.gradient.size() == places.parameters.size() &&
             (places.momentum.empty() || places.momentum.size() == places.parameters.size()),
         "gradient and momentum have a place for each parameter");
  ResidentState state(device, compute, places, std::move(packing));
  TRY_ASSIGN(state.fetching_, make_stream());
  TRY_ASSIGN(state.updated_, make_event());
  return state;
}

/// From memory that is not pinned: CUDA has read the values when the call returns.
void ResidentState::upload(std::span<const float> from, std::span<float> to) {
  ENSURE(from.size() == to.size(), "the state belongs to this model");
  require_gpu(check(
      cudaMemcpyAsync(to.data(), from.data(), from.size_bytes(), cudaMemcpyHostToDevice, compute_),
      "copying a state to the device"));
}

void ResidentState::pack() {
  require_gpu(check(cudaGraphLaunch(packing_.get(), compute_), "packing weights"));
}

void ResidentState::load(const Weights& weights) {
  if (version_ == weights.version) {
    return;
  }
  upload(weights.parameters, places_.parameters);
  upload(weights.statistics, places_.statistics);
  pack();
  version_ = weights.version;
}

void ResidentState::update(const DeviceUpdate& update) {
  ENSURE(can_update(), "the engine was asked to keep the state");
  if (version_ != update.weights.version) {
    upload(update.weights.parameters, places_.parameters);
  }
  if (momentum_version_ != update.weights.version) {
    upload(update.momentum, places_.momentum);
  }
  const int failed = device_kernels().sgd_update(
      update.options, update.learning_rate, places_.gradient.data(), places_.parameters.data(),
      places_.momentum.data(), places_.parameters.size(), compute_);
  require_gpu(check(static_cast<cudaError_t>(failed), "updating weights"));
  require_gpu(check(cudaEventRecord(updated_.get(), compute_), "marking an update"));
  upload(update.weights.statistics, places_.statistics);
  pack();
  version_ = update.version;
  momentum_version_ = update.version;
}

void ResidentState::keep(std::uint64_t from, std::uint64_t to) {
  for (std::optional<std::uint64_t>* version : {&version_, &momentum_version_}) {
    if (*version == from) {
      *version = to;
    }
  }
}

void ResidentState::fetch(DevicePart part, std::size_t first, std::span<float> to) {
  const std::span<const float> from =
      part == DevicePart::kParameters ? places_.parameters : places_.momentum;
  ENSURE(first <= from.size() && to.size() <= from.size() - first, "a part of what is there");
  require_gpu(check(cudaSetDevice(device_), "choosing the device"));
  require_gpu(check(cudaStreamWaitEvent(fetching_.get(), updated_.get(), 0), "awaiting an update"));
  require_gpu(check(cudaMemcpyAsync(to.data(), from.data() + first, to.size_bytes(),
                                    cudaMemcpyDeviceToHost, fetching_.get()),
                    "copying a state from the device"));
  require_gpu(check(cudaStreamSynchronize(fetching_.get()), "fetching a state"));
}

}  // namespace mayfly::nn::cuda
