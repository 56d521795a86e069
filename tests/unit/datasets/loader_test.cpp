#include "datasets/loader.hpp"

#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "datasets/core/augmentation.hpp"
#include "datasets/core/sample_stream.hpp"
#include "datasets/readers.hpp"

namespace mayfly::datasets {
namespace {

LoaderOptions options_with(std::uint32_t threads) {
  LoaderOptions options;
  options.seed = 11;
  options.global_batch = 32;
  options.microbatch = 8;
  options.threads = threads;
  options.prefetch_max = 3;
  return options;
}

constexpr std::array<std::uint32_t, 4> kAll = {0, 1, 2, 3};

void expect_same_batch(const PreparedBatch& a, const PreparedBatch& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.microbatch, b.microbatch);
  EXPECT_EQ(a.samples, b.samples);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_EQ(a.images, b.images);
}

TEST(Loader, WhoLooksImagesUpGetsAllButThem) {
  const DatasetPair pair = make_procedural(100, 1);
  const SampleStream stream(11, 100);
  for (const std::uint32_t threads : {0U, 2U}) {
    const auto whole = make_loader(pair, options_with(threads));
    const auto loader = make_loader(pair, options_with(threads));
    loader->leave_images_out();
    for (std::uint64_t step = 1; step <= 5; ++step) {  // 160 samples of 100: into the second epoch
      loader->request(step, kAll);
      for (const std::uint32_t microbatch : kAll) {
        auto batch = loader->take(step, microbatch);
        EXPECT_TRUE(batch->images.empty());
        for (std::size_t i = 0; i < 8; ++i) {
          const StreamEntry entry = stream.at((step - 1) * 32 + microbatch * 8 + i);
          ASSERT_EQ(batch->entries[i].sample, entry.sample);
          ASSERT_EQ(batch->entries[i].epoch, entry.epoch);
        }
        const auto other = whole->take(step, microbatch);
        EXPECT_EQ(batch->samples, other->samples);
        EXPECT_EQ(batch->labels, other->labels);
        loader->recycle(std::move(batch));
      }
    }
  }
}

TEST(Loader, MicrobatchesTileTheStreamAndCarryItsAugmentedSamples) {
  const DatasetPair pair = make_procedural(100, 1);
  const auto loader = make_loader(pair, options_with(1));
  const SampleStream stream(11, 100);
  const Normaliser normaliser(pair.mean, pair.deviation);
  std::vector<std::uint8_t> pixels(3072);
  std::vector<float> expected(3072);
  for (std::uint64_t step = 1; step <= 7; ++step) {
    loader->request(step, kAll);
    for (const std::uint32_t microbatch : kAll) {
      const auto batch = loader->take(step, microbatch);
      ASSERT_EQ(batch->step, step);
      ASSERT_EQ(batch->microbatch, microbatch);
      ASSERT_EQ(batch->images.size(), 8U * 3072);
      for (std::uint64_t i = 0; i < 8; ++i) {
        const StreamEntry entry = stream.at((step - 1) * 32 + microbatch * 8 + i);
        ASSERT_EQ(batch->samples[i], entry.sample);
        ASSERT_EQ(batch->labels[i], pair.train->label(entry.sample));
        EXPECT_TRUE(pair.train->read(entry.sample, pixels).ok());
        normaliser.apply(draw_augmentation(11, entry.epoch, entry.sample), 32, pixels, expected);
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(),
                               batch->images.begin() + static_cast<long>(i * 3072)));
      }
    }
  }
}

TEST(Loader, WithoutAugmentationImagesAreOnlyNormalised) {
  const DatasetPair pair = make_procedural(64, 1);
  LoaderOptions options = options_with(0);
  options.augment = false;
  const auto loader = make_loader(pair, options);
  const auto batch = loader->take(1, 0);
  std::vector<std::uint8_t> pixels(3072);
  std::vector<float> expected(3072);
  EXPECT_TRUE(pair.train->read(batch->samples[0], pixels).ok());
  Normaliser(pair.mean, pair.deviation).apply({}, 32, pixels, expected);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), batch->images.begin()));
}

TEST(Loader, WhoLooksAheadGetsWhatIsAnnouncedInItsOrder) {
  const DatasetPair pair = make_procedural(100, 1);
  const auto reference = make_loader(pair, options_with(0));
  const auto loader = make_loader(pair, options_with(2));
  EXPECT_EQ(loader->take_ahead(), nullptr) << "nothing is announced";
  loader->request(1, kAll);
  loader->request(2, kAll);
  loader->recycle(loader->take(1, 0));
  for (std::uint32_t i = 1; i < 8; ++i) {
    std::unique_ptr<PreparedBatch> batch;
    while ((batch = loader->take_ahead()) == nullptr) {
      std::this_thread::yield();
    }
    expect_same_batch(*batch, *reference->take(1 + i / 4, i % 4));
    loader->recycle(std::move(batch));
  }
  EXPECT_EQ(loader->take_ahead(), nullptr) << "all are taken";
}

TEST(Loader, NobodyLooksAheadAtWhatIsNotPreparedOrNotWantedAnyMore) {
  const DatasetPair pair = make_procedural(100, 1);
  const auto unprepared = make_loader(pair, options_with(0));
  unprepared->request(1, kAll);
  EXPECT_EQ(unprepared->take_ahead(), nullptr);
  const auto loader = make_loader(pair, options_with(1));
  loader->request(1, kAll);
  loader->recycle(loader->take(1, 0));
  loader->cancel_requests();
  EXPECT_EQ(loader->take_ahead(), nullptr);
}

TEST(Loader, GivesTheSameBatchesForAnyNumberOfThreadsAndAnyOrder) {
  const DatasetPair pair = make_procedural(100, 1);
  const auto reference = make_loader(pair, options_with(0));
  for (const std::uint32_t threads : {1U, 3U}) {
    const auto loader = make_loader(pair, options_with(threads));
    for (std::uint64_t step = 1; step <= 10; ++step) {
      loader->request(step, kAll);
      for (const std::uint32_t microbatch : {3U, 0U, 2U, 1U}) {
        auto batch = loader->take(step, microbatch);
        expect_same_batch(*batch, *reference->take(step, microbatch));
        loader->recycle(std::move(batch));
      }
    }
  }
}

TEST(Loader, TakesWhatWasNeverRequested) {
  const DatasetPair pair = make_procedural(100, 1);
  const auto loader = make_loader(pair, options_with(1));
  EXPECT_EQ(loader->take(5, 2)->step, 5U);
}

TEST(Loader, UsesRecycledMemoryAgain) {
  const DatasetPair pair = make_procedural(100, 1);
  const auto loader = make_loader(pair, options_with(2));
  std::map<const float*, int> buffers;
  for (std::uint64_t step = 1; step <= 50; ++step) {
    loader->request(step, kAll);
    for (const std::uint32_t microbatch : kAll) {
      auto batch = loader->take(step, microbatch);
      buffers[batch->images.data()] += 1;
      loader->recycle(std::move(batch));
    }
  }
  // At most prefetch_max in preparation, one that the taker holds, and one that it prepares itself.
  EXPECT_LE(buffers.size(), 5U);
}

TEST(Loader, ForgetsCancelledRequestsAndServesNewOnes) {
  const DatasetPair pair = make_procedural(100, 1);
  const auto reference = make_loader(pair, options_with(0));
  const auto loader = make_loader(pair, options_with(1));
  for (std::uint64_t step = 1; step <= 30; ++step) {
    loader->request(step, kAll);
    loader->request(step + 1, kAll);
    if (step % 3 == 0) {
      loader->cancel_requests();
      loader->request(step, kAll);
    }
    for (const std::uint32_t microbatch : kAll) {
      auto batch = loader->take(step, microbatch);
      expect_same_batch(*batch, *reference->take(step, microbatch));
      loader->recycle(std::move(batch));
    }
  }
}

TEST(Loader, StopsWithWorkPending) {
  const DatasetPair pair = make_procedural(1000, 1);
  for (int round = 0; round < 20; ++round) {
    const auto loader = make_loader(pair, options_with(2));
    for (std::uint64_t step = 1; step <= 20; ++step) {
      loader->request(step, kAll);
    }
  }
}

// Goal: any mixture of calls from several threads neither hangs nor mixes batches up (run under
// TSan as well). Method: three takers on the same steps, one thread that cancels.
TEST(Loader, SurvivesConcurrentTakersAndCancels) {
  const DatasetPair pair = make_procedural(100, 1);
  const auto loader = make_loader(pair, options_with(2));
  const auto reference = make_loader(pair, options_with(0));
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::vector<std::uint32_t>> samples;
  for (std::uint64_t step = 1; step <= 60; ++step) {
    for (const std::uint32_t microbatch : kAll) {
      samples[{step, microbatch}] = reference->take(step, microbatch)->samples;
    }
  }
  const auto train = [&](std::uint64_t first) {
    for (std::uint64_t step = first; step <= 60; ++step) {
      loader->request(step, kAll);
      for (const std::uint32_t microbatch : kAll) {
        auto batch = loader->take(step, microbatch);
        EXPECT_EQ(batch->samples, samples.at({step, microbatch}));
        loader->recycle(std::move(batch));
      }
    }
  };
  std::vector<std::thread> threads;
  for (const std::uint64_t first : {1U, 1U, 2U}) {
    threads.emplace_back(train, first);
  }
  threads.emplace_back([&] {
    for (int i = 0; i < 200; ++i) {
      loader->cancel_requests();
      std::this_thread::yield();
    }
  });
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(Loader, CountsTheTimeThatCallersWaited) {
  const DatasetPair pair = make_procedural(100, 1);
  const auto loader = make_loader(pair, options_with(0));
  EXPECT_EQ(loader->time_waited().total().count(), 0);
  loader->recycle(loader->take(1, 0));
  EXPECT_GT(loader->time_waited().total().count(), 0);
}

/// `waited`: how long a caller waited for two microbatches of step 2, which is delayed, and for one
/// of step 1. `took`: the time from the request until the caller had the first two. With threads of
/// the loader, a caller that asks late, as on a busy machine, waits for less than `took`.
struct HeldBack {
  LoaderWait waited;
  Duration took{};
};

HeldBack held_back(const LoaderPace& pace, std::uint32_t threads) {
  const DatasetPair pair = make_procedural(100, 1);
  LoaderOptions options = options_with(threads);
  options.pace = [&](std::uint64_t step) { return step == 2 ? pace : LoaderPace{}; };
  const auto loader = make_loader(pair, options);
  const std::vector<std::uint32_t> both = {0, 1};
  const Instant requested = monotonic_now();
  loader->request(2, both);
  loader->recycle(loader->take(2, 0));
  loader->recycle(loader->take(2, 1));
  const Duration took = monotonic_now() - requested;
  loader->recycle(loader->take(1, 0));
  return {loader->time_waited(), took};
}

TEST(Loader, WaitsForReadingAndForPreparingAreToldApart) {
  const HeldBack slow_fetch = held_back({.fetch = milliseconds(60)}, 0);
  EXPECT_GE(slow_fetch.waited.fetch, milliseconds(120));
  const HeldBack slow_prep = held_back({.prep = milliseconds(60)}, 0);
  EXPECT_GE(slow_prep.waited.prep, milliseconds(120));
  EXPECT_EQ(slow_prep.waited.fetch.count() / 1'000'000, 0);
}

TEST(Loader, RecycledBatchesHaveNothingOfTheirLastFetch) {
  const DatasetPair pair = make_procedural(100, 1);
  LoaderOptions options = options_with(0);
  options.pace = [](std::uint64_t step) {
    return step == 1 ? LoaderPace{.fetch = milliseconds(5)} : LoaderPace{};
  };
  const auto loader = make_loader(pair, options);
  loader->leave_images_out();
  auto batch = loader->take(1, 0);
  EXPECT_GE(batch->fetched, milliseconds(5));
  loader->recycle(std::move(batch));
  EXPECT_EQ(loader->take(2, 0)->fetched.count(), 0);
}

TEST(Loader, ThreadsOfTheLoaderAreHeldBack) {
  // The caller may prepare one of the two microbatches itself at the same time.
  EXPECT_GE(held_back({.fetch = milliseconds(60)}, 1).took, milliseconds(60));
  const HeldBack slow_prep = held_back({.prep = milliseconds(60)}, 1);
  EXPECT_GE(slow_prep.took, milliseconds(60));
  EXPECT_EQ(slow_prep.waited.fetch.count() / 1'000'000, 0);
}

TEST(Loader, AStorageRateHoldsForAllThreadsTogether) {
  const std::uint64_t bytes = 2U * options_with(0).microbatch * 3072U;
  const double rate = static_cast<double>(bytes) / 0.12;  // two microbatches in 120 ms
  EXPECT_GT(held_back({.storage_rate = rate}, 0).waited.fetch, milliseconds(110));
  for (const std::uint32_t threads : {0U, 2U}) {
    EXPECT_GT(held_back({.storage_rate = rate}, threads).took, milliseconds(110)) << threads;
  }
}

TEST(Loader, TestBatchesAreNormalisedInOrder) {
  const DatasetPair pair = make_procedural(100, 1);
  std::vector<float> images(3 * 3072);
  std::vector<std::uint16_t> labels(3);
  EXPECT_TRUE(prepare_test_batch(pair, 997, images, labels).ok());
  std::vector<std::uint8_t> pixels(3072);
  std::vector<float> expected(3072);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(pair.test->read(997 + i, pixels).ok());
    Normaliser(pair.mean, pair.deviation).apply({}, 32, pixels, expected);
    EXPECT_EQ(labels[i], pair.test->label(997 + i));
    EXPECT_TRUE(
        std::equal(expected.begin(), expected.end(), images.begin() + static_cast<long>(i * 3072)));
  }
}

}  // namespace
}  // namespace mayfly::datasets
