#include "datasets/preparer.hpp"

#include <vector>

#include "base/check.hpp"
#include "base/try_assign.hpp"
#include "datasets/image_store.hpp"
#include "datasets/jpeg.hpp"
#include "datasets/prepared_store.hpp"

namespace mayfly::datasets {
namespace {

// Most samples that are claimed before they are fetched from other hosts. If this job is stopped
// meanwhile, each of them costs other jobs kPatience.
constexpr std::size_t kClaimsMost = 8;

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
      own_most_(options.prepared == nullptr ? options.microbatch
                : pair.peers == nullptr     ? 1
                                            : kClaimsMost),
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
  batch.fetched = {};
  batch.bytes_from_store = 0;
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
  using Turn = PreparedStore::Turn;
  const std::size_t size = image_bytes(train_);
  const std::span<std::uint8_t> pixels = scratch_pixels(size);
  PreparedStore* const shared = options_.prepared.get();
  std::vector<Own> own;
  std::vector<Own> put_off;  // samples that other jobs are preparing
  Augmentation draw;
  const auto use = [&](const Own& sample) {
    count_from_store(train_.stored_bytes(stream_.at(sample.position).sample));
    normaliser_.apply(draw, train_.image_size(), pixels, sample.out);
  };
  for (std::size_t i = 0; i < options_.microbatch; ++i) {
    Own sample{.position = first + i,
               .out = std::span(batch.images).subspan(i * size, size),
               .is_claimed = false};
    const Turn turn = shared == nullptr ? Turn::kFull : shared->take(sample.position, pixels, draw);
    sample.is_claimed = turn == Turn::kOwn;
    if (turn == Turn::kReady) {
      use(sample);
    } else {
      (turn == Turn::kOthers ? put_off : own).push_back(sample);
    }
    if (own.size() == own_most_) {
      TRY(prepare_all(own));
    }
  }
  TRY(prepare_all(own));
  for (const Own& sample : put_off) {
    if (shared->wait(sample.position, pixels, draw)) {
      use(sample);
    } else {
      own.push_back(sample);
    }
  }
  return prepare_all(own);
}

/// Prepares all samples and leaves the list empty. Samples that follow each other in the stream are
/// fetched together.
Result<void> Preparer::prepare_all(std::vector<Own>& own) const {
  Result<void> done;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const std::uint64_t position = own[i].position;
    if (!done.ok()) {
      if (own[i].is_claimed) {
        options_.prepared->give_up(position);
      }
      continue;
    }
    if (i == 0 || own[i - 1].position + 1 != position) {
      std::size_t count = 1;
      while (i + count < own.size() && own[i + count].position == position + count) {
        ++count;
      }
      train_.fetch_ahead(stream_, position, count);
    }
    done = prepare(own[i]);
  }
  own.clear();
  return done;
}

Result<void> Preparer::prepare(const Own& own) const {
  const std::span<std::uint8_t> pixels = scratch_pixels(image_bytes(train_));
  const Result<Augmentation> draw = read(stream_.at(own.position), pixels);
  if (own.is_claimed && draw.ok()) {
    options_.prepared->give(own.position, pixels, draw.value());
  } else if (own.is_claimed) {
    options_.prepared->give_up(own.position);
  }
  TRY(draw);
  normaliser_.apply(draw.value(), train_.image_size(), pixels, own.out);
  return {};
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
