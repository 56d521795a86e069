#pragma once

// Private to nn/cuda: where a GPU's images come from. A training set that fits is copied to the
// GPU's memory once, and microbatches are prepared there: one kernel looks them up, crops, flips
// and normalises them, with the CPU's draws. So only two numbers per sample are copied for a
// microbatch instead of its pixels. Otherwise the images of every microbatch are copied: while one
// is computed, those of the next. This file decides the order of the copies; FeedCalls makes the
// calls of a device.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/random.hpp"
#include "base/result.hpp"
#include "datasets/core/augmentation.hpp"
#include "nn/step_engine.hpp"

namespace mayfly::nn::cuda {

/// The number of images in a set and their augmentation.
struct ResidentSet {
  std::uint64_t samples = 0;
  CounterRandom augmentation{0};  ///< datasets::augmentation_source
  bool augment = false;           ///< otherwise images stay unchanged
};

/// Square images of the network's input size.
struct TrainingSet {
  ResidentSet resident;
  datasets::Normaliser::Table table{};
  std::size_t image_bytes = 0;  ///< 3 x width x width
  /// Sample i to image_bytes bytes, CHW. Called while an engine is made, on its thread.
  std::function<Result<void>(std::uint64_t sample, std::span<std::uint8_t> pixels)> read;
};

/// Whether all of them are samples of the set.
[[nodiscard]] bool are_of(const ResidentSet& set, std::span<const SampleDraw> draws);

/// Reads all images, one after the other, and passes them to `take` in pieces of some MiB, each
/// with the offset of its first byte. Fails with the first error of reading or `take`.
[[nodiscard]] Result<void> read_in_pieces(
    const TrainingSet& set,
    const std::function<Result<void>(std::size_t first, std::span<const std::uint8_t>)>& take);

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
  /// Announces the batch that will probably be the next argument of take(), as
  /// DeviceEngine::prefetch() does. Nothing is copied yet.
  void expect(const Batch& next) { expected_ = next; }
  /// To be called when the device is busy: copies the images that were announced, if there are any.
  void bring_expected();

 private:
  void bring(const Batch& batch);

  FeedCalls& calls_;
  std::size_t next_ = 0;           // index of the pinned memory to use next
  std::optional<Batch> expected_;  // its images are valid until bring_expected()
  std::uint64_t brought_ = 0;      // id of a batch on the device that was not taken yet; 0: none
};

}  // namespace mayfly::nn::cuda
