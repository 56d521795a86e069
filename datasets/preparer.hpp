#pragma once

// Fills a batch with the samples of a microbatch: reads, augments and normalises them, or takes
// samples that another job of the host has prepared. A pure function of (data set, options, step,
// microbatch).

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "datasets/core/augmentation.hpp"
#include "datasets/core/sample_stream.hpp"
#include "datasets/dataset.hpp"
#include "datasets/loader.hpp"

namespace mayfly::datasets {

class Preparer {
 public:
  /// `pair` outlives it.
  Preparer(const DatasetPair& pair, const LoaderOptions& options);

  /// Must be called before any batch is filled.
  void leave_images_out() { with_images_ = false; }
  [[nodiscard]] const LoaderOptions& options() const { return options_; }

  /// If an image cannot be read, the batch contains the error. Any thread.
  void fill(std::uint64_t step, std::uint32_t microbatch, PreparedBatch& batch) const;

 private:
  /// A sample that this job prepares itself.
  struct Own {
    std::uint64_t position = 0;
    std::span<float> out;
    bool is_claimed = false;  ///< other jobs may wait for it
  };

  [[nodiscard]] Result<void> fill_images(std::uint64_t first, PreparedBatch& batch) const;
  [[nodiscard]] Result<void> prepare_all(std::vector<Own>& own) const;
  [[nodiscard]] Result<void> prepare(const Own& own) const;
  [[nodiscard]] Result<Augmentation> read(const StreamEntry& entry,
                                          std::span<std::uint8_t> pixels) const;

  const Dataset& train_;
  LoaderOptions options_;
  std::size_t own_most_;  // most samples that are fetched together
  SampleStream stream_;
  Normaliser normaliser_;
  bool with_images_ = true;
};

}  // namespace mayfly::datasets
