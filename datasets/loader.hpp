#pragma once

// Prepares microbatches ahead of the step: reads, augments, normalises. The content of a microbatch
// is a pure function of (seed, step, microbatch number); the loader only decides when it is
// prepared.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/time.hpp"
#include "datasets/core/sample_stream.hpp"
#include "datasets/dataset.hpp"
#include "datasets/feed.hpp"
#include "datasets/prepared_store.hpp"

namespace mayfly::datasets {

/// Delays of a loader, for experiments (--inject).
struct LoaderPace {
  Duration fetch{};         ///< additional time for reading each microbatch
  double storage_rate = 0;  ///< bytes per second that all its threads read together; 0 = any
  Duration prep{};          ///< additional processor time for preparing each microbatch
};
/// The delays in a step. Any thread.
using LoaderPaceOf = std::function<LoaderPace(std::uint64_t step)>;

struct LoaderOptions {
  std::uint64_t seed = 0;
  std::uint32_t global_batch = 128;  ///< samples per step
  std::uint32_t microbatch = 16;     ///< samples; divides global_batch
  bool augment = true;               ///< random crop and flip, as the data set defines them
  std::uint32_t prefetch_max = 16;   ///< upper bound on prepared or partly prepared microbatches
  std::uint32_t threads = 1;         ///< preparing threads; 0 = prepare in take()
  /// Run the preparing threads at low priority, so that compute threads get the cores: for data
  /// sets whose images take long to prepare. A caller of take() that is faster prepares itself.
  bool yield_cores = false;
  std::uint32_t takers = 1;  ///< threads that call take() at the same time
  /// The images and labels of the first microbatches are taken again and again: nothing is read or
  /// prepared, and no delay applies. For measurements; the training has no useful result.
  bool reuse_images = false;
  LoaderPaceOf pace{};  ///< empty = as fast as it can
  /// Shares prepared samples with other jobs of this host, in both directions; null = none.
  std::shared_ptr<PreparedStore> prepared{};
};

/// One prepared microbatch. If `failure` is set, an image could not be read and the other fields
/// are not valid.
struct PreparedBatch {
  std::uint64_t step = 0;  ///< from 1
  std::uint32_t microbatch = 0;
  std::vector<float> images;  ///< microbatch x 3 x S x S, normalised; see leave_images_out()
  std::vector<std::uint16_t> labels;
  std::vector<std::uint32_t> samples;  ///< sample ids, for the records
  std::vector<StreamEntry> entries;    ///< the same with their epochs, which determine the draws
  std::optional<Error> failure;
  Duration fetched{};  ///< time for which its images were read from files (for a tar: 0)
  std::uint64_t bytes_from_store = 0;  ///< bytes of its images that a store had
};

class Loader : public Feed {
 public:
  /// Returns the microbatch. Waits if a thread is preparing it; prepares it on the calling thread
  /// if it was never requested or its preparation has not begun. Any thread.
  [[nodiscard]] virtual std::unique_ptr<PreparedBatch> take(std::uint64_t step,
                                                            std::uint32_t microbatch) = 0;
  /// The first announced microbatch that is not taken yet, if it is prepared, else null. For a
  /// caller that takes all microbatches in order and copies the next one to a device ahead of its
  /// turn. Any thread; never waits for a preparation.
  [[nodiscard]] virtual std::unique_ptr<PreparedBatch> take_ahead() = 0;
  /// Returns a batch so that its memory is reused. Any thread.
  virtual void recycle(std::unique_ptr<PreparedBatch> batch) = 0;
  /// Leaves `images` of all batches empty, for a device that holds the training set and looks
  /// images up itself. Before the first request.
  virtual void leave_images_out() = 0;
};

/// `pair` must outlive the loader.
[[nodiscard]] std::unique_ptr<Loader> make_loader(const DatasetPair& pair,
                                                  const LoaderOptions& options);

/// Normalised test images [first, first + labels.size()) without augmentation. Any thread. Errors
/// name the image that could not be read.
[[nodiscard]] Result<void> prepare_test_batch(const DatasetPair& pair, std::size_t first,
                                              std::span<float> images,
                                              std::span<std::uint16_t> labels);

}  // namespace mayfly::datasets
