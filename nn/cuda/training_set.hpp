#pragma once

// A training set that an engine may copy to the memory of its GPU, to prepare microbatches there:
// looked up, cropped, flipped and normalised by one kernel, with the CPU's draws. Then a microbatch
// brings two numbers per sample to the device instead of its pixels.

#include <cstddef>
#include <cstdint>
#include <functional>
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
  bool augment = false;           ///< else images stay as they are
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

/// Reads all images, one behind the other, and hands them over in pieces of some MiB: `take` is
/// given the place of the first byte and the bytes. Fails as whichever fails.
[[nodiscard]] Result<void> read_in_pieces(
    const TrainingSet& set,
    const std::function<Result<void>(std::size_t first, std::span<const std::uint8_t>)>& take);

}  // namespace mayfly::nn::cuda
