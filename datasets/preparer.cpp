#include "datasets/preparer.hpp"

#include <memory>
#include <vector>

#include "base/check.hpp"
#include "base/try_assign.hpp"
#include "datasets/image_store.hpp"
#include "datasets/jpeg.hpp"
#include "datasets/prepared_store.hpp"

namespace mayfly::datasets {
namespace {

std::size_t image_bytes(const Dataset& set) {
  const auto side = static_cast<std::size_t>(set.image_size());
  return 3 * side * side;
}

std::span<std::uint8_t> scratch_pixels(std::size_t size) {
  thread_local std::vector<std::uint8_t> pixels;
  pixels.resize(size);
  return pixels;
}

}  // namespace

Preparer::Preparer(const DatasetPair& pair, const LoaderOptions& options)
    : train_(*pair.train),
      options_(options),
      stream_(options.seed, pair.train->size()),
      normaliser_(pair.mean, pair.deviation) {
  ENSURE(options.microbatch > 0 && options.global_batch % options.microbatch == 0,
         "a microbatch divides the global batch");
  ENSURE(pair.train->size() <= UINT32_MAX, "sample ids have 32 bits");
}

void Preparer::fill(std::uint64_t step, std::uint32_t microbatch, PreparedBatch& batch) const {
  ENSURE(step > 0 && microbatch < options_.global_batch / options_.microbatch,
         "steps count from 1 and the microbatch lies inside the global batch");
  batch.step = step;
  batch.microbatch = microbatch;
  batch.failure.reset();
  const bool is_reused = options_.reuse_images && !batch.labels.empty();
  batch.images.resize(with_images_ ? options_.microbatch * image_bytes(train_) : 0);
  batch.labels.resize(options_.microbatch);
  batch.samples.resize(options_.microbatch);
  batch.entries.resize(options_.microbatch);
  const std::uint64_t first =
      (step - 1) * options_.global_batch + std::uint64_t{microbatch} * options_.microbatch;
  for (std::size_t i = 0; i < options_.microbatch; ++i) {
    const StreamEntry entry = stream_.at(first + i);
    batch.entries[i] = entry;
    batch.labels[i] = is_reused ? batch.labels[i] : train_.label(entry.sample);
    batch.samples[i] = static_cast<std::uint32_t>(entry.sample);
  }
  if (!with_images_ || is_reused) {
    return;
  }
  const Duration reading_before = time_reading_files();
  const std::uint64_t stores_before = bytes_from_stores();
  if (const Result<void> filled = fill_images(first, batch); !filled.ok()) {
    batch.failure = filled.error();
    return;
  }
  batch.fetched = time_reading_files() - reading_before;
  batch.bytes_from_store = bytes_from_stores() - stores_before;
}

Result<void> Preparer::fill_images(std::uint64_t first, PreparedBatch& batch) const {
  train_.fetch_ahead(stream_, first, options_.microbatch);
  const std::size_t size = image_bytes(train_);
  const std::span<std::uint8_t> pixels = scratch_pixels(size);
  const auto image = [&](std::size_t i) { return std::span(batch.images).subspan(i * size, size); };
  std::vector<std::size_t> put_off;  // other jobs are preparing them
  for (std::size_t i = 0; i < options_.microbatch; ++i) {
    TRY_ASSIGN(const bool is_there, prepare(first + i, pixels, image(i), false));
    if (!is_there) {
      put_off.push_back(i);
    }
  }
  for (const std::size_t i : put_off) {
    TRY(prepare(first + i, pixels, image(i), true));
  }
  return {};
}

/// The sample at a position of the stream, normalised. False if another job prepares it now and
/// this one does not wait.
Result<bool> Preparer::prepare(std::uint64_t position, std::span<std::uint8_t> pixels,
                               std::span<float> out, bool waits) const {
  using Turn = PreparedStore::Turn;
  const StreamEntry entry = stream_.at(position);
  PreparedStore* const shared = options_.prepared.get();
  Augmentation draw;
  const Turn turn = shared == nullptr ? Turn::kFull : shared->take(position, pixels, draw);
  if (turn == Turn::kOthers && !waits) {
    return false;
  }
  if (turn == Turn::kReady || (turn == Turn::kOthers && shared->wait(position, pixels, draw))) {
    count_from_store(train_.stored_bytes(entry.sample));
  } else {
    const Result<Augmentation> own = read(entry, pixels);
    if (turn == Turn::kOwn && own.ok()) {
      shared->give(position, pixels, own.value());
    } else if (turn == Turn::kOwn) {
      shared->give_up(position);
    }
    TRY(own);
    draw = own.value();
  }
  normaliser_.apply(draw, train_.image_size(), pixels, out);
  return true;
}

Result<Augmentation> Preparer::read(const StreamEntry& entry,
                                    std::span<std::uint8_t> pixels) const {
  if (options_.augment) {
    return train_.read_for_training(entry.sample, {options_.seed, entry.epoch}, pixels);
  }
  TRY(train_.read(entry.sample, pixels));
  return Augmentation();
}

Result<void> prepare_test_batch(const DatasetPair& pair, std::size_t first, std::span<float> images,
                                std::span<std::uint16_t> labels) {
  const Dataset& test = *pair.test;
  const std::size_t image = image_bytes(test);
  ENSURE(first + labels.size() <= test.size() && images.size() == labels.size() * image,
         "the batch lies inside the test part");
  const Normaliser normaliser(pair.mean, pair.deviation);
  const std::span<std::uint8_t> pixels = scratch_pixels(image);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    TRY(test.read(first + i, pixels));
    normaliser.apply({}, test.image_size(), pixels, images.subspan(i * image, image));
    labels[i] = test.label(first + i);
  }
  return {};
}

}  // namespace mayfly::datasets
