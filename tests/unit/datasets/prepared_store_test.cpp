#include "datasets/prepared_store.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/time.hpp"
#include "datasets/host_memory.hpp"
#include "datasets/image_store.hpp"
#include "datasets/loader.hpp"
#include "datasets/peer_stores.hpp"
#include "datasets/readers.hpp"

namespace mayfly::datasets {
namespace {

using Turn = PreparedStore::Turn;

constexpr std::uint64_t kBytes = 300;
using Pixels = std::array<std::uint8_t, kBytes>;

Pixels pixels_of(std::uint64_t position) {
  Pixels pixels{};
  for (std::size_t i = 0; i < kBytes; ++i) {
    pixels[i] = static_cast<std::uint8_t>(position * 31 + i * (position + 7));
  }
  return pixels;
}

Augmentation draw_of(std::uint64_t position) {
  return {static_cast<int>(position % 9), static_cast<int>(position / 9 % 9), position % 2 == 1};
}

class PreparedStoreTest : public testing::Test {
 protected:
  PreparedStoreTest() {
    std::string pattern = testing::TempDir() + "mayfly-prepared-XXXXXX";
    options.folder = ::mkdtemp(pattern.data());
    options.key = {3, 4};
    options.sample_bytes = kBytes;
    options.bytes_max = 4 * 400;  // room for one set
  }
  ~PreparedStoreTest() override { std::filesystem::remove_all(options.folder); }

  [[nodiscard]] std::unique_ptr<PreparedStore> joined() const {
    return PreparedStore::join(options).value();
  }
  [[nodiscard]] std::unique_ptr<HostMemory> memory_of_store() const {
    return HostMemory::join(
               {.name = "prepared-" + to_string(options.key), .folder = options.folder},
               [](UniqueFd fd, std::uint64_t size) -> std::optional<HostMemory::Mapping> {
                 return HostMemory::Mapping{SealedMemory::map(fd.get(), size).value(),
                                            std::move(fd)};
               },
               []() -> Result<HostMemory::Mapping> {
                 return Error{Errc::kNotFound, "it is there"};
               })
        .value();
  }
  [[nodiscard]] std::uint64_t bytes_taken() const {
    struct stat status {};
    EXPECT_EQ(::fstat(memory_of_store()->fd(), &status), 0);
    return static_cast<std::uint64_t>(status.st_blocks) * 512;
  }
  static Turn take(PreparedStore& store, std::uint64_t position) {
    Pixels pixels{};
    Augmentation draw;
    const Turn turn = store.take(position, pixels, draw);
    if (turn == Turn::kReady) {
      EXPECT_EQ(pixels, pixels_of(position));
      EXPECT_EQ(draw, draw_of(position));
    }
    return turn;
  }
  static void give(PreparedStore& store, std::uint64_t position) {
    store.give(position, pixels_of(position), draw_of(position));
  }
  static void prepare(PreparedStore& store, std::uint64_t position) {
    ASSERT_EQ(take(store, position), Turn::kOwn);
    give(store, position);
  }
  static bool wait(PreparedStore& store, std::uint64_t position) {
    Pixels pixels{};
    Augmentation draw;
    return store.wait(position, pixels, draw);
  }

  PreparedStore::Options options;
};

TEST_F(PreparedStoreTest, OneJobPreparesASampleForAll) {
  const auto one = joined();
  const auto other = joined();
  EXPECT_EQ(one->capacity(), 4u);
  EXPECT_EQ(take(*one, 7), Turn::kOwn);
  EXPECT_EQ(take(*other, 7), Turn::kOthers);
  EXPECT_FALSE(wait(*other, 7)) << "only for a while";
  give(*one, 7);
  EXPECT_EQ(take(*other, 7), Turn::kReady);
  EXPECT_TRUE(wait(*other, 7));
  EXPECT_EQ(take(*one, 7), Turn::kReady);
}

/// A process that makes a store must not take all its memory at once, which would take long: others
/// wait for the process, but only for half a minute.
TEST_F(PreparedStoreTest, MemoryIsTakenAsSamplesCome) {
  options.bytes_max = std::uint64_t{64} << 20;
  const auto store = joined();
  EXPECT_GT(store->capacity(), 100'000u);
  EXPECT_LT(bytes_taken(), 8u << 20);
  for (std::uint64_t position = 0; position < 8000; ++position) {
    prepare(*store, position);
  }
  EXPECT_EQ(take(*store, 0), Turn::kReady);
  EXPECT_GT(bytes_taken(), 8000 * kBytes);
  EXPECT_LT(bytes_taken(), std::uint64_t{32} << 20);
}

TEST_F(PreparedStoreTest, WithoutMemoryJobsPrepareForThemselves) {
  options.bytes_max = std::uint64_t{64} << 20;
  options.usable = [] { return std::uint64_t{1} << 20; };
  EXPECT_EQ(PreparedStore::join(options).error().code, Errc::kInvalidInput);
  static std::atomic<std::uint64_t> usable_bytes;
  usable_bytes = std::uint64_t{100} << 20;
  options.usable = [] { return usable_bytes.load(); };
  const auto one = joined();
  usable_bytes = std::uint64_t{2} << 20;  // no more than the margin for others, 1/32 of the store
  EXPECT_EQ(take(*one, 1), Turn::kFull);
  ImageStore::Options images{.key = {1, 1},
                             .images = 10,
                             .bytes_max = std::uint64_t{50} << 20,
                             .folder = options.folder,
                             .usable = [] { return std::uint64_t{100} << 20; }};
  EXPECT_NE(ImageStore::join(images).error().detail.find("beside the 0.1 GiB that other stores"),
            std::string::npos);
}

TEST_F(PreparedStoreTest, AListThatWasRemovedAsOldComesBack) {
  const auto one = joined();
  prepare(*one, 1);
  const auto memory = memory_of_store();
  const std::string list = options.folder + "/prepared-" + to_string(options.key);
  std::filesystem::remove(list);
  memory->stay_listed(monotonic_now());
  EXPECT_FALSE(std::filesystem::exists(list)) << "not all the time";
  memory->stay_listed(monotonic_now() + seconds(4000));
  EXPECT_EQ(take(*joined(), 1), Turn::kReady);
  // Meanwhile, another process has made a store of its own.
  std::filesystem::remove(list);
  const auto other = joined();
  memory->stay_listed(monotonic_now() + seconds(8000));
  EXPECT_EQ(take(*joined(), 1), Turn::kOwn);
}

TEST_F(PreparedStoreTest, WhatCannotBePreparedIsTheNextOnesTurn) {
  const auto store = joined();
  EXPECT_EQ(take(*store, 7), Turn::kOwn);
  store->give_up(7);
  EXPECT_FALSE(wait(*store, 7));
  EXPECT_EQ(take(*store, 7), Turn::kOwn);
}

TEST_F(PreparedStoreTest, TheSampleThatWasNotTouchedForLongestGoes) {
  const auto store = joined();
  for (std::uint64_t position = 0; position < 4; ++position) {
    prepare(*store, position);
  }
  EXPECT_EQ(take(*store, 0), Turn::kReady);
  prepare(*store, 4);
  EXPECT_EQ(take(*store, 0), Turn::kReady);
  EXPECT_EQ(take(*store, 2), Turn::kReady);
  EXPECT_EQ(take(*store, 1), Turn::kOwn);
}

TEST_F(PreparedStoreTest, PlacesOfWhoIsPreparingAreNotTaken) {
  const auto store = joined();
  for (std::uint64_t position = 0; position < 4; ++position) {
    EXPECT_EQ(take(*store, position), Turn::kOwn);
  }
  EXPECT_EQ(take(*store, 4), Turn::kFull);
  give(*store, 2);
  EXPECT_EQ(take(*store, 4), Turn::kOwn);
  EXPECT_EQ(take(*store, 5), Turn::kFull);
}

TEST_F(PreparedStoreTest, WhoIsSilentForASecondLosesItsPlace) {
  const auto store = joined();
  const ::pid_t child = ::fork();
  if (child == 0) {
    ::_exit(take(*joined(), 0) == Turn::kOwn ? 0 : 1);  // it ends before it gives the sample
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  for (std::uint64_t position = 1; position < 4; ++position) {
    prepare(*store, position);
  }
  EXPECT_EQ(take(*store, 0), Turn::kOthers);
  std::this_thread::sleep_for(milliseconds(1010));
  for (std::uint64_t position = 1; position < 4; ++position) {
    EXPECT_EQ(take(*store, position), Turn::kReady);
  }
  prepare(*store, 4);
  EXPECT_EQ(take(*store, 1), Turn::kReady);
  give(*store, 0);  // as the ended process might do late, when another sample has its place
  EXPECT_EQ(take(*store, 4), Turn::kReady);
}

/// As if a writer was stopped in the middle and continued after another sample had got its place.
TEST_F(PreparedStoreTest, ASampleThatWasWrittenOverIsAbsent) {
  const auto store = joined();
  prepare(*store, 5);
  const auto memory = memory_of_store();
  const Pixels pixels = pixels_of(5);
  std::byte* const end = memory->data() + options.bytes_max;
  const auto found = std::search(memory->data(), end, std::as_bytes(std::span(pixels)).begin(),
                                 std::as_bytes(std::span(pixels)).end());
  ASSERT_NE(found, end);
  found[kBytes / 2] ^= std::byte{1};
  EXPECT_EQ(take(*store, 5), Turn::kOwn);
  give(*store, 5);
  EXPECT_EQ(take(*store, 5), Turn::kReady);
}

TEST_F(PreparedStoreTest, JobsWithOtherSamplesAreApartAndTooLittleIsRefused) {
  const auto store = joined();
  prepare(*store, 1);
  PreparedStore::Options others = options;
  others.key = {3, 5};
  EXPECT_EQ(take(*PreparedStore::join(others).value(), 1), Turn::kOwn);
  others = options;
  others.key = {3, 6};
  others.bytes_max = 3 * kBytes;
  EXPECT_EQ(PreparedStore::join(others).error().code, Errc::kInvalidInput);
  others.bytes_max = std::uint64_t{1} << 50;
  EXPECT_NE(PreparedStore::join(others).error().detail.find("is more than the"), std::string::npos);
}

TEST_F(PreparedStoreTest, ManyInStepPrepareEachSampleAboutOnce) {
  constexpr std::uint64_t kSamples = 4000;
  options.bytes_max = 256 * 400;
  std::atomic<std::uint64_t> prepared{0};
  std::vector<std::thread> jobs;
  for (int job = 0; job < 4; ++job) {
    jobs.emplace_back([&] {
      const auto store = joined();
      for (std::uint64_t position = 0; position < kSamples; ++position) {
        Pixels pixels{};
        Augmentation draw;
        Turn turn = store->take(position, pixels, draw);
        if (turn == Turn::kOthers && store->wait(position, pixels, draw)) {
          turn = Turn::kReady;
        }
        if (turn == Turn::kReady) {
          ASSERT_EQ(pixels, pixels_of(position));
          ASSERT_EQ(draw, draw_of(position));
          continue;
        }
        ++prepared;
        if (turn == Turn::kOwn) {
          give(*store, position);
        }
      }
    });
  }
  for (std::thread& job : jobs) {
    job.join();
  }
  EXPECT_GE(prepared, kSamples);
  EXPECT_LE(prepared, 4 * kSamples);
}

/// Records which samples are fetched, and cannot read one of them.
class FetchedSet final : public Dataset {
 public:
  explicit FetchedSet(const Dataset& set) : set_(set) {}
  [[nodiscard]] std::size_t size() const override { return set_.size(); }
  [[nodiscard]] int image_size() const override { return set_.image_size(); }
  [[nodiscard]] std::uint16_t label(std::size_t index) const override { return set_.label(index); }
  [[nodiscard]] Result<void> read(std::size_t index,
                                  std::span<std::uint8_t> pixels) const override {
    return index == unreadable ? Result<void>(Error{Errc::kCorrupt, "unreadable"})
                               : set_.read(index, pixels);
  }
  void fetch_ahead(const SampleStream&, std::uint64_t position, std::size_t count) const override {
    fetches.emplace_back(position, count);
  }

  mutable std::vector<std::pair<std::uint64_t, std::size_t>> fetches;
  std::size_t unreadable = SIZE_MAX;

 private:
  const Dataset& set_;
};

TEST_F(PreparedStoreTest, OnlyWhatNobodyHasPreparedIsFetched) {
  DatasetPair pair = make_procedural(64, 1);
  const auto set = std::make_shared<FetchedSet>(*pair.train);
  const std::shared_ptr<const Dataset> plain = std::exchange(pair.train, set);
  ImageStore::Options images{
      .key = {1, 1}, .images = 1, .bytes_max = 1000, .folder = options.folder};
  pair.peers = PeerStores::start(ImageStore::join(images).value(), {9}, "127.0.0.1").value();
  options.sample_bytes = std::uint64_t{3} * 32 * 32;
  options.bytes_max = std::uint64_t{1} << 20;
  LoaderOptions loading;
  loading.global_batch = 20;
  loading.microbatch = 20;
  loading.threads = 0;
  loading.prepared = joined();
  const std::unique_ptr<PreparedStore> other = joined();
  std::vector<std::uint8_t> pixels(options.sample_bytes);
  Augmentation draw;
  EXPECT_EQ(other->take(5, pixels, draw), Turn::kOwn);  // `other` never gives it
  using Fetches = std::vector<std::pair<std::uint64_t, std::size_t>>;
  const auto first = make_loader(pair, loading)->take(1, 0);
  EXPECT_EQ(set->fetches, (Fetches{{0, 5}, {6, 3}, {9, 8}, {17, 3}, {5, 1}}));
  set->fetches.clear();
  loading.prepared = joined();
  EXPECT_EQ(make_loader(pair, loading)->take(1, 0)->images, first->images);
  EXPECT_EQ(set->fetches, (Fetches{{5, 1}}));
  // A sample that cannot be read leaves no claim behind.
  set->unreadable = SampleStream(loading.seed, 64).at(22).sample;
  EXPECT_TRUE(make_loader(pair, loading)->take(2, 0)->failure.has_value());
  for (const std::uint64_t position : {22U, 23U, 27U, 28U}) {
    EXPECT_EQ(other->take(position, pixels, draw), Turn::kOwn) << position;
  }
}

TEST_F(PreparedStoreTest, LoadersGiveTheSameBatchesWithIt) {
  const DatasetPair pair = make_procedural(64, 1);
  LoaderOptions loading;
  loading.seed = 11;
  loading.global_batch = 32;
  loading.microbatch = 8;
  loading.threads = 2;
  const auto alone = make_loader(pair, loading);
  options.sample_bytes = std::uint64_t{3} * 32 * 32;
  options.bytes_max = std::uint64_t{1} << 20;
  loading.prepared = joined();
  const auto first = make_loader(pair, loading);
  loading.prepared = joined();
  loading.global_batch = 16;  // another job, with other batches
  loading.microbatch = 16;
  const auto second = make_loader(pair, loading);
  std::uint64_t shared = 0;
  for (std::uint64_t step = 1; step <= 6; ++step) {
    std::vector<float> own;
    for (std::uint32_t microbatch = 0; microbatch < 4; ++microbatch) {
      const auto wanted = alone->take(step, microbatch);
      EXPECT_EQ(first->take(step, microbatch)->images, wanted->images);
      own.insert(own.end(), wanted->images.begin(), wanted->images.end());
    }
    std::vector<float> others;
    for (std::uint64_t half = 1; half <= 2; ++half) {
      const auto batch = second->take(2 * (step - 1) + half, 0);
      others.insert(others.end(), batch->images.begin(), batch->images.end());
      shared += batch->bytes_from_store;
    }
    EXPECT_EQ(others, own);
  }
  EXPECT_EQ(shared, std::uint64_t{6} * 32 * 3 * 32 * 32) << "all were prepared by the first";
}

}  // namespace
}  // namespace mayfly::datasets
