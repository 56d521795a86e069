#pragma once

// Private to nn/cuda: the order of copies of a microbatch's images from the host to a device: while
// one microbatch is computed, the images of the next are copied. This class only decides; FeedCalls
// makes the calls of a device.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "nn/step_engine.hpp"

namespace mayfly::nn::cuda {

/// The calls that a feed needs. The device has a separate buffer for images that are not needed
/// yet.
class FeedCalls {
 public:
  virtual ~FeedCalls() = default;

  /// Pinned host memory for the images of a microbatch; `which` is 0 or 1.
  [[nodiscard]] virtual float* pinned(std::size_t which) = 0;
  /// Blocks until no upload reads pinned memory `which` any more.
  virtual void await_upload(std::size_t which) = 0;
  /// Starts a copy of pinned memory to the buffer on the device, on a separate stream, after the
  /// last hand_over(). Does not wait.
  virtual void upload(std::size_t which, std::size_t bytes) = 0;
  /// Queues, on the engine's stream, a copy from that buffer to the images of a step, after the
  /// last upload. Does not wait.
  virtual void hand_over(std::size_t bytes) = 0;
};

/// The engine's thread only.
class ImageFeed {
 public:
  /// `calls` outlives it.
  explicit ImageFeed(FeedCalls& calls) : calls_(calls) {}

  /// The next step on the engine's stream reads the images of this batch.
  void take(const Batch& batch);
  /// Announces the batch that take() will probably be given next, as DeviceEngine::prefetch() does.
  /// Nothing is copied yet.
  void expect(const Batch& next) { expected_ = next; }
  /// The device is busy: copies the images that were announced, if there are any.
  void bring_expected();

 private:
  void bring(const Batch& batch);

  FeedCalls& calls_;
  std::size_t next_ = 0;           // pinned memory, in turns
  std::optional<Batch> expected_;  // its images are valid until bring_expected()
  std::uint64_t brought_ = 0;      // id of the batch on the device that was not taken yet; 0: none
};

}  // namespace mayfly::nn::cuda
