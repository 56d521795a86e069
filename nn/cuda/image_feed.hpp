#pragma once

// Private to nn/cuda: the way of a microbatch's images from the host to a device, two at a time:
// while one is computed, the next is brought there. Decides only; a device makes the calls.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "nn/step_engine.hpp"

namespace mayfly::nn::cuda {

/// What a device does for a feed. It has a place of its own for images that are not wanted yet.
class FeedCalls {
 public:
  virtual ~FeedCalls() = default;

  /// Host memory for the images of a microbatch that the device may read by itself; 0 or 1.
  [[nodiscard]] virtual float* pinned(std::size_t which) = 0;
  /// Blocks until no upload reads pinned memory `which` any more.
  virtual void await_upload(std::size_t which) = 0;
  /// Starts a copy of pinned memory to the place on the device, on a stream of its own, behind the
  /// last hand_over(). Does not wait.
  virtual void upload(std::size_t which, std::size_t bytes) = 0;
  /// Gives the engine's stream a copy from that place to where a step reads images, behind the last
  /// upload. Does not wait.
  virtual void hand_over(std::size_t bytes) = 0;
};

/// The engine's thread only.
class ImageFeed {
 public:
  /// `calls` outlives it.
  explicit ImageFeed(FeedCalls& calls) : calls_(calls) {}

  /// The step that the engine's stream is given next reads the images of this batch.
  void take(const Batch& batch);
  /// As DeviceEngine::prefetch(): what take() will probably be given next. Nothing is copied yet.
  void expect(const Batch& next) { expected_ = next; }
  /// The device has work: brings what is expected, if anything is.
  void bring_expected();

 private:
  void bring(const Batch& batch);

  FeedCalls& calls_;
  std::size_t next_ = 0;           // pinned memory, in turns
  std::optional<Batch> expected_;  // its images are valid until bring_expected()
  std::uint64_t brought_ = 0;      // id of the batch on the device that nobody has taken; 0: none
};

}  // namespace mayfly::nn::cuda
