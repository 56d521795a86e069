#include "nn/cuda/gradient_copy.hpp"

#include <algorithm>
#include <utility>

#include "base/gpu_failure.hpp"

namespace mayfly::nn::cuda {

Result<GradientCopy> GradientCopy::make(std::size_t elements, std::size_t parts) {
  GradientCopy copy;
  Result<OwnedStream> stream = make_stream();
  if (!stream.ok()) {
    return std::move(stream).error();
  }
  copy.stream_ = std::move(stream).value();
  Result<PinnedMemory> pinned = make_pinned_memory(elements * sizeof(float));
  if (!pinned.ok()) {
    return std::move(pinned).error();
  }
  copy.pinned_ = std::move(pinned).value();
  for (std::size_t i = 0; i < parts; ++i) {
    for (std::vector<OwnedEvent>* events : {&copy.computed_, &copy.copied_}) {
      Result<OwnedEvent> event = make_event();
      if (!event.ok()) {
        return std::move(event).error();
      }
      events->push_back(std::move(event).value());
    }
  }
  return copy;
}

void GradientCopy::start(std::size_t part, cudaStream_t compute, const float* gradient,
                         std::size_t first, std::size_t end) {
  require_gpu(check(cudaEventRecord(computed_[part].get(), compute), "marking a segment"));
  require_gpu(
      check(cudaStreamWaitEvent(stream_.get(), computed_[part].get(), 0), "awaiting a segment"));
  require_gpu(
      check(cudaMemcpyAsync(static_cast<float*>(pinned_.get()) + first, gradient + first,
                            (end - first) * sizeof(float), cudaMemcpyDeviceToHost, stream_.get()),
            "copying from the device"));
  require_gpu(check(cudaEventRecord(copied_[part].get(), stream_.get()), "marking a copy"));
}

void GradientCopy::bring(std::size_t part, std::size_t first, std::size_t end,
                         std::span<float> to) {
  require_gpu(check(cudaEventSynchronize(copied_[part].get()), "computing a gradient"));
  std::copy_n(static_cast<const float*>(pinned_.get()) + first, end - first, to.data() + first);
}

void GradientCopy::settle() {
  if (stream_.get() != nullptr) {
    (void)cudaStreamSynchronize(stream_.get());
  }
}

}  // namespace mayfly::nn::cuda
