#pragma once

// Private to nn/cuda: finished parts of a gradient on their way to the host, on a stream of their
// own, while the rest is computed. The engine's thread only.

#include <cstddef>
#include <span>
#include <vector>

#include "nn/cuda/cuda_handles.hpp"

namespace mayfly::nn::cuda {

class GradientCopy {
 public:
  GradientCopy() = default;
  /// Of `elements` elements, in so many parts. kUnsupported if CUDA refuses.
  [[nodiscard]] static Result<GradientCopy> make(std::size_t elements, std::size_t parts);

  /// Starts the copy of elements [first, end) of the device's gradient, behind what `compute` was
  /// given before. Does not wait.
  void start(std::size_t part, cudaStream_t compute, const float* gradient, std::size_t first,
             std::size_t end);
  /// Waits for that copy and puts it to the same elements of `to`.
  void bring(std::size_t part, std::size_t first, std::size_t end, std::span<float> to);
  /// Nothing is in flight any more, or the device has failed.
  void settle();

 private:
  OwnedStream stream_;
  PinnedMemory pinned_;
  std::vector<OwnedEvent> computed_, copied_;  ///< by part
};

}  // namespace mayfly::nn::cuda
