#pragma once

// Prepares microbatches ahead of the step: reads, augments, normalises. What a microbatch contains
// is a pure function of (seed, step, microbatch number); the loader only decides when.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/time.hpp"
#include "datasets/core/sample_stream.hpp"
#include "datasets/dataset.hpp"

namespace mayfly::datasets {

struct LoaderOptions {
  std::uint64_t seed = 0;
  std::uint32_t global_batch = 128;  ///< samples per step
  std::uint32_t microbatch = 16;     ///< samples; divides global_batch
  bool augment = true;               ///< random crop and flip, as the data set has it
  std::uint32_t prefetch_max = 16;   ///< microbatches prepared or being prepared at most
  std::uint32_t threads = 1;         ///< preparing threads; 0 = prepare in take()
  /// Preparing threads leave the cores to others where these have work: for sets whose images take
  /// long to prepare. A caller of take() that is faster prepares itself.
  bool yield_cores = false;
};

/// One prepared microbatch. If `failure` is there, an image could not be read and the rest means
/// nothing.
struct PreparedBatch {
  std::uint64_t step = 0;  ///< from 1
  std::uint32_t microbatch = 0;
  std::vector<float> images;  ///< microbatch x 3 x S x S, normalised; see leave_images_out()
  std::vector<std::uint16_t> labels;
  std::vector<std::uint32_t> samples;  ///< sample ids, for the ledger
  std::vector<StreamEntry> entries;    ///< the same with their passes, which decide the draws
  std::optional<Error> failure;
};

class Loader {
 public:
  virtual ~Loader() = default;
  /// Announces microbatches that will be taken, in this order. Beyond prefetch_max they wait their
  /// turn. Any thread.
  virtual void request(std::uint64_t step, std::span<const std::uint32_t> microbatches) = 0;
  /// Returns the microbatch, waiting for its preparation or, if it was never requested or not
  /// begun, preparing it on the calling thread. Any thread.
  [[nodiscard]] virtual std::unique_ptr<PreparedBatch> take(std::uint64_t step,
                                                            std::uint32_t microbatch) = 0;
  /// The first microbatch that is announced and not taken, if it is prepared, else null: for who
  /// takes all of them in their order and wants to look ahead. Any thread; never waits for a
  /// preparation.
  [[nodiscard]] virtual std::unique_ptr<PreparedBatch> take_ahead() = 0;
  /// Gives a batch back so that its memory is used again. Any thread.
  virtual void recycle(std::unique_ptr<PreparedBatch> batch) = 0;
  /// Forgets everything requested and not taken (the assignment changed). Any thread.
  virtual void cancel_requests() = 0;
  /// Batches have no images from now on, for who looks them up itself. Before the first request.
  virtual void leave_images_out() = 0;
  /// Total time that take() made its callers wait or prepare, since the start.
  [[nodiscard]] virtual Duration time_waited() const = 0;
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
