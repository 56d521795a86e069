#pragma once

// Private to nn/cuda: the calls of an image feed, on a GPU: pinned memory, a stream that copies
// images to the device, and events that keep it and the engine's stream in order.

#include <array>
#include <cstddef>

#include "nn/cuda/cuda_handles.hpp"
#include "nn/cuda/image_feed.hpp"

namespace mayfly::nn::cuda {

class DeviceFeed final : public FeedCalls {
 public:
  /// Images of at most `bytes` go to `waiting` and from there to `images`, both of the device's
  /// memory, which outlives the feed, as the engine's stream does. kUnsupported if CUDA refuses.
  [[nodiscard]] static Result<DeviceFeed> make(cudaStream_t engine, void* waiting, void* images,
                                               std::size_t bytes);

  [[nodiscard]] float* pinned(std::size_t which) override {
    return static_cast<float*>(pinned_[which].get());
  }
  void await_upload(std::size_t which) override;
  void upload(std::size_t which, std::size_t bytes) override;
  void hand_over(std::size_t bytes) override;
  /// Nothing is in flight any more, or the device has failed.
  void settle() { (void)cudaStreamSynchronize(copying_.get()); }

 private:
  DeviceFeed() = default;

  cudaStream_t engine_ = nullptr;
  void* waiting_ = nullptr;
  void* images_ = nullptr;
  std::array<PinnedMemory, 2> pinned_;
  OwnedStream copying_;
  std::array<OwnedEvent, 2> uploaded_;  // by pinned memory
  std::size_t last_ = 0;                // uploaded most recently
  OwnedEvent handed_over_;
};

}  // namespace mayfly::nn::cuda
