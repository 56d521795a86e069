#pragma once

// Private to nn/cuda: all copies between the host and a GPU, except those of the state
// (resident_state): the training set, once; the images of a microbatch that come from the host;
// finished gradients, which are copied to the host; and the small inputs and results of a step. The
// engine's thread only.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "nn/cuda/cuda_handles.hpp"
#include "nn/cuda/image_source.hpp"
#include "nn/cuda/kernels/kernels.hpp"
#include "nn/model.hpp"

namespace mayfly::nn::cuda {

/// Pinned memory for the small inputs and results of a step, and for the images of evaluation.
struct Staging {
  PinnedMemory images;  ///< of evaluation
  PinnedMemory draws, labels, loss_input, loss_output, statistics;
};

/// Cleared memory for microbatches of this size. kUnsupported if CUDA refuses.
[[nodiscard]] Result<Staging> make_staging(const Model& model, std::uint32_t microbatch);

/// The number of floats of one image in host memory.
[[nodiscard]] inline std::size_t image_floats(const Model& model) {
  const auto side = static_cast<std::size_t>(model.image_size);
  return 3 * side * side;
}

/// Copies finished parts of a gradient to the host, on a stream of its own, while the rest is
/// computed.
class GradientCopy {
 public:
  GradientCopy() = default;
  /// For a gradient of `elements` elements that is copied in `parts` parts. kUnsupported if CUDA
  /// refuses.
  [[nodiscard]] static Result<GradientCopy> make(std::size_t elements, std::size_t parts);

  /// Starts the copy of elements [first, end) of the device's gradient, after everything that was
  /// submitted to `compute` before. Does not wait.
  void start(std::size_t part, cudaStream_t compute, const float* gradient, std::size_t first,
             std::size_t end);
  /// Waits for that copy and writes it to the same elements of `to`.
  void bring(std::size_t part, std::size_t first, std::size_t end, std::span<float> to);
  /// Nothing is in flight any more, or the device has failed.
  void settle();

 private:
  OwnedStream stream_;
  PinnedMemory pinned_;
  std::vector<OwnedEvent> computed_, copied_;  ///< by part
};

/// Copies all images of a training set, and the table of their normalised values, to their places
/// in the device's memory, on `stream`; they are complete when it returns. Fails with the errors of
/// reading; kUnsupported if the device fails.
[[nodiscard]] Result<void> copy_to_device(const TrainingSet& set, void* pixels, void* table,
                                          Stream stream);

/// The calls of an image feed on a GPU: pinned memory, a stream that copies images to the device,
/// and events that keep it and the engine's stream in order.
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
