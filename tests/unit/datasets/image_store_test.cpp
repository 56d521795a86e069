#include "datasets/image_store.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/time.hpp"

namespace mayfly::datasets {
namespace {

/// The buffer into which find() copies an image that may be given up.
Bytes& space() {
  thread_local Bytes bytes;
  return bytes;
}

class ImageStoreTest : public testing::Test {
 protected:
  ImageStoreTest() {
    std::string pattern = testing::TempDir() + "mayfly-store-XXXXXX";
    options.folder = ::mkdtemp(pattern.data());
    options.key = {1, 2};
    options.images = 100;
    options.bytes_max = 100'000;
  }
  ~ImageStoreTest() override { std::filesystem::remove_all(options.folder); }

  static Bytes image(std::uint64_t number, std::size_t size) {
    return Bytes(size, static_cast<std::byte>(number + 1));
  }
  static bool has(const ImageStore& store, std::uint64_t number, std::size_t size) {
    const ByteSpan found = store.find(number, size, space()).bytes;
    const Bytes wanted = image(number, size);
    return std::ranges::equal(found, wanted);
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(options.folder), {}));
  }

  ImageStore::Options options;
};

/// Starts a child process that does `work` and ends.
template <typename Work>
::pid_t in_child(const Work& work) {
  const ::pid_t child = ::fork();
  if (child == 0) {
    work();
    ::_exit(0);
  }
  return child;
}

void await_end(::pid_t child) {
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
}

TEST_F(ImageStoreTest, KeepsImagesUntilItIsFullAndReplacesNone) {
  auto store = ImageStore::join(options);
  ASSERT_TRUE(store.ok()) << store.error().detail;
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_TRUE(store.value()->find(i, 3001, space()).bytes.empty());
    store.value()->keep(i, image(i, 3001));
  }
  std::uint64_t kept = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    kept += has(*store.value(), i, 3001) ? 1 : 0;
  }
  EXPECT_EQ(kept, 100'000 / 3008) << "each begins at a multiple of 32 bytes";
  EXPECT_EQ(store.value()->bytes_kept(), kept * 3008);
  store.value()->keep(99, image(99, 8));  // there is still room for a small image
  EXPECT_TRUE(has(*store.value(), 99, 8));
  store.value()->keep(0, image(5, 3001));
  EXPECT_TRUE(has(*store.value(), 0, 3001)) << "what is kept stays";
}

TEST_F(ImageStoreTest, ProcessesShareItAndItEndsWithTheLast) {
  auto store = ImageStore::join(options);
  ASSERT_TRUE(store.ok()) << store.error().detail;
  store.value()->keep(7, image(7, 500));
  await_end(in_child([&] {
    auto same = ImageStore::join(options);
    if (same.ok() && has(*same.value(), 7, 500)) {
      same.value()->keep(8, image(8, 600));
    }
    ::_exit(0);  // without destructors, as if it were killed
  }));
  EXPECT_TRUE(has(*store.value(), 8, 600));
  // The store outlives its maker as long as another object has it open.
  auto other = ImageStore::join(options);
  ASSERT_TRUE(other.ok());
  store.value().reset();
  EXPECT_TRUE(has(*other.value(), 8, 600));
  auto third = ImageStore::join(options);
  ASSERT_TRUE(third.ok());
  EXPECT_TRUE(has(*third.value(), 7, 500));
  EXPECT_EQ(third.value()->bytes_max(), 100'000U);
  other.value().reset();
  third.value().reset();
  EXPECT_EQ(files(), 0U) << "nothing is left behind";
  auto fresh = ImageStore::join(options);
  ASSERT_TRUE(fresh.ok());
  EXPECT_TRUE(fresh.value()->find(7, 500, space()).bytes.empty());
}

TEST_F(ImageStoreTest, StoresOfOtherImagesAreOthers) {
  auto store = ImageStore::join(options);
  ASSERT_TRUE(store.ok());
  store.value()->keep(7, image(7, 500));
  ImageStore::Options other = options;
  other.key = {1, 3};
  auto of_others = ImageStore::join(other);
  ASSERT_TRUE(of_others.ok());
  EXPECT_TRUE(of_others.value()->find(7, 500, space()).bytes.empty());
  // A list with the descriptor of another file, a process that has ended, and a wrong line.
  const int fd = ::open("/dev/null", O_RDWR);
  std::ofstream(options.folder + "/images-" + to_string(Digest{1, 4}))
      << ::getpid() << " " << fd << " 9\n999999999 3 9\nnonsense\n";
  other.key = {1, 4};
  auto in_spite = ImageStore::join(other);
  ASSERT_TRUE(in_spite.ok()) << in_spite.error().detail;
  EXPECT_TRUE(in_spite.value()->find(7, 500, space()).bytes.empty());
  ::close(fd);
}

TEST_F(ImageStoreTest, WhoDiesWhileItKeepsAnImageLeavesTheImageToOthers) {
  auto store = ImageStore::join(options);
  ASSERT_TRUE(store.ok());
  // Processes are killed while they keep images as fast as they can. All images that are found
  // afterwards are right, and other processes can keep the images that the killed ones had begun.
  for (int round = 0; round < 20; ++round) {
    const ::pid_t child = in_child([&] {
      for (std::uint64_t i = 0;; i = (i + 1) % 100) {
        store.value()->keep(i, image(i, 700 + i));
      }
    });
    ::usleep(static_cast<::useconds_t>(100 * round));
    ::kill(child, SIGKILL);
    await_end(child);
    for (std::uint64_t i = 0; i < 100; ++i) {
      EXPECT_TRUE(store.value()->find(i, 700 + i, space()).bytes.empty() ||
                  has(*store.value(), i, 700 + i))
          << i;
    }
  }
  for (std::uint64_t i = 0; i < 100; ++i) {
    store.value()->keep(i, image(i, 700 + i));
  }
  std::uint64_t found = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    found += has(*store.value(), i, 700 + i) ? 1 : 0;
  }
  EXPECT_GE(found, 95U) << "at most what was begun by the killed takes up room";
}

TEST_F(ImageStoreTest, ThreadsMayKeepAndFindAtTheSameTime) {
  options.images = 2000;
  options.bytes_max = 1'000'000;
  auto store = ImageStore::join(options);
  ASSERT_TRUE(store.ok());
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 2000; ++i) {
        const std::uint64_t number = (i * 7 + t * 501) % 2000;
        store.value()->keep(number, image(number % 200, 400));
        const ByteSpan found = store.value()->find(number, 400, space()).bytes;
        wrong += found.empty() || std::ranges::equal(found, image(number % 200, 400)) ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(store.value()->bytes_kept(), 2000 * 416U) << "each once";
}

TEST_F(ImageStoreTest, ADamagedImageIsNotHandedOverToAnotherProcess) {
  auto store = ImageStore::join(options);
  ASSERT_TRUE(store.ok());
  store.value()->keep(7, image(7, 500));
  store.value()->keep(8, image(8, 600));
  const ByteSpan kept = store.value()->find(7, 500, space()).bytes;
  const_cast<std::byte&>(kept[499]) ^= std::byte{4};
  auto other = ImageStore::join(options);  // like another process, it has not checked the images
  ASSERT_TRUE(other.ok());
  const ImageStore::Found found = other.value()->find(7, 500, space());
  EXPECT_TRUE(found.is_damaged);
  EXPECT_TRUE(found.bytes.empty());
  EXPECT_TRUE(has(*other.value(), 8, 600)) << "the others are right";
  const ImageStore::Found again = other.value()->find(7, 500, space());
  EXPECT_TRUE(again.bytes.empty() && !again.is_damaged) << "it is no longer kept";
  other.value()->keep(7, image(7, 500));  // as if it were read from storage again
  EXPECT_TRUE(has(*other.value(), 7, 500));
  EXPECT_TRUE(has(*store.value(), 7, 500));
}

TEST_F(ImageStoreTest, ASecondCopyThatIsKeptAgainIsCheckedAgain) {
  auto one = ImageStore::join(options).value();
  auto other = ImageStore::join(options).value();
  EXPECT_TRUE(one->keep_second(7, image(7, 500)));
  EXPECT_TRUE(has(*one, 7, 500) && has(*other, 7, 500));
  one->allow_giving_up(true);
  EXPECT_TRUE(one->keep_second(9, image(9, 5000)));
  EXPECT_TRUE(one->keep(8, image(8, 95'000)));  // in place of both; room for a page is left
  EXPECT_FALSE(one->keeps(7));
  EXPECT_TRUE(other->keep_second(7, image(7, 500)));
  std::ifstream list(options.folder + "/images-" + to_string(options.key));
  int process = 0;
  int fd = -1;
  list >> process >> fd;
  struct stat info {};
  ASSERT_EQ(::fstat(fd, &info), 0);
  constexpr off_t kUnmapped = off_t{1} << 44;  // room of second copies, at the end
  const off_t at = ::lseek(fd, info.st_size - kUnmapped, SEEK_DATA);
  ASSERT_EQ(::pwrite(fd, "x", 1, at), 1);
  EXPECT_TRUE(one->find(7, 500, space()).is_damaged);
}

TEST_F(ImageStoreTest, SecondCopiesAreGivenUpForWhatIsKeptForGood) {
  auto store = ImageStore::join(options).value();
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_TRUE(store->keep(i, image(i, 5000)));
  }
  const std::uint64_t used = store->bytes_kept();
  for (std::uint64_t i = 10; i < 17; ++i) {
    EXPECT_EQ(store->keep_second(i, image(i, 5000)), i < 16) << "two pages each";
    EXPECT_EQ(has(*store, i, 5000), i < 16);
  }
  EXPECT_EQ(store->bytes_kept(), used + 6 * 8192);
  EXPECT_EQ(store->index().spare, 6 * 8192U);
  EXPECT_FALSE(store->keep(20, image(20, 20'000))) << "it is not allowed";
  store->keep_for_good(12);
  store->allow_giving_up(true);
  EXPECT_FALSE(store->keep_second(21, image(21, 20'000)))
      << "nothing is given up for a second copy";
  EXPECT_TRUE(store->keep(20, image(20, 20'000)));
  EXPECT_TRUE(has(*store, 20, 20'000));
  EXPECT_TRUE(has(*store, 12, 5000)) << "it is kept for good";
  const StoreIndex index = store->index();
  std::uint64_t seconds = 0;
  for (std::uint64_t i = 10; i < 16; ++i) {
    EXPECT_EQ(index.keeps(i), has(*store, i, 5000));
    EXPECT_EQ(index.keeps_second(i), index.keeps(i) && i != 12);
    seconds += index.keeps_second(i) ? 1 : 0;
  }
  EXPECT_EQ(index.spare, seconds * 8192);
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_TRUE(has(*store, i, 5000)) << "no other is given up";
  }
  EXPECT_FALSE(store->keep(30, image(30, 50'000))) << "all second copies are not enough";
  EXPECT_EQ(store->index().spare, 0U);
  EXPECT_LE(store->bytes_kept(), options.bytes_max);
}

TEST_F(ImageStoreTest, MemoryThatWasGivenUpGoesBackToTheSystem) {
  options.bytes_max = 1'000'000;
  auto store = ImageStore::join(options).value();
  store->allow_giving_up(true);
  std::ifstream list(options.folder + "/images-" + to_string(options.key));
  int process = 0;
  int fd = -1;
  list >> process >> fd;
  const auto held = [&] {
    struct stat info {};
    EXPECT_EQ(::fstat(fd, &info), 0);
    return static_cast<std::uint64_t>(info.st_blocks) * 512;
  };
  const std::uint64_t before = held();
  for (std::uint64_t round = 0; round < 20; ++round) {  // many times the store's room
    for (std::uint64_t i = 0; i < 60; ++i) {
      (void)store->keep_second(i, image(i, 30'000));
      EXPECT_LE(held() - before, 1'000'000U);
    }
    const std::uint64_t kept = 60 + round;
    EXPECT_TRUE(store->keep(kept, image(kept, 30'000)));
  }
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_TRUE(store->find(i, 30'000, space()).bytes.empty() || has(*store, i, 30'000));
  }
}

TEST_F(ImageStoreTest, WhoReadsWhileSecondCopiesAreGivenUpHasTheWholeImageOrNothing) {
  options.bytes_max = 400'000;
  auto store = ImageStore::join(options).value();
  store->allow_giving_up(true);
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> found{0};
  std::atomic<bool> is_over{false};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 3; ++reader) {
    readers.emplace_back([&, reader] {
      auto own = ImageStore::join(options).value();  // checks images that others have kept
      Bytes copy;
      for (std::uint64_t i = 0; !is_over; i = (i + 7) % 90) {
        const Bytes wanted = image(i, 30'000);
        const ImageStore::Found got = own->find(i, 30'000, copy);
        wrong += got.is_damaged || (!got.bytes.empty() && !std::ranges::equal(got.bytes, wanted));
        const ByteSpan sent = own->kept(i, copy).bytes;
        wrong += !sent.empty() && !std::ranges::equal(sent, wanted);
        found += got.bytes.empty() ? 0 : 1;
      }
    });
  }
  for (std::uint64_t round = 0; round < 200 || (found < 100 && round < 100'000); ++round) {
    (void)store->keep_second(round % 89, image(round % 89, 30'000));
    Bytes large = image(99, 100'000);
    if (round % 7 == 0 && store->keep(90 + round / 7 % 3, large)) {
      wrong += store->bytes_kept() > options.bytes_max ? 1 : 0;
    }
  }
  is_over = true;
  for (std::thread& reader : readers) {
    reader.join();
  }
  EXPECT_EQ(wrong, 0U);
}

TEST_F(ImageStoreTest, MoreThanTheMachineHasIsRefusedInOneLine) {
  options.bytes_max = kStoreBytesMax;
  const auto store = ImageStore::join(options);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, Errc::kInvalidInput);
  EXPECT_NE(store.error().detail.find("512.0 GiB is more than"), std::string::npos)
      << store.error().detail;
}

TEST_F(ImageStoreTest, WhatOtherStoresMayStillTakeIsNotPromisedAgain) {
  options.usable = [] { return std::uint64_t{100} << 20; };
  options.bytes_max = std::uint64_t{70} << 20;
  auto first = ImageStore::join(options);
  ASSERT_TRUE(first.ok()) << first.error().detail;
  EXPECT_TRUE(ImageStore::join(options).ok()) << "it is the same";
  ImageStore::Options other = options;
  other.key = {1, 3};
  const auto second = ImageStore::join(other);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Errc::kInvalidInput);
  EXPECT_NE(second.error().detail.find("beside the 0.1 GiB that other stores"), std::string::npos)
      << second.error().detail;
  first.value().reset();
  EXPECT_TRUE(ImageStore::join(other).ok()) << "the other one has ended";
}

TEST_F(ImageStoreTest, AListThatWasBeingWrittenPromisesNothing) {
  options.usable = [] { return std::uint64_t{100} << 20; };
  options.bytes_max = std::uint64_t{40} << 20;
  const auto first = ImageStore::join(options).value();
  const std::string list = options.folder + "/images-" + to_string(options.key);
  const std::string unfinished = list + ".tmp.999999999";  // its writer was killed
  std::filesystem::copy_file(list, unfinished);
  options.key = {1, 3};
  options.bytes_max = std::uint64_t{50} << 20;
  const auto second = ImageStore::join(options);
  EXPECT_TRUE(second.ok()) << second.error().detail;
  EXPECT_FALSE(std::filesystem::exists(unfinished));
}

std::atomic<std::uint64_t> usable_bytes;

TEST_F(ImageStoreTest, NothingMoreIsKeptWhileTheMachineHasTooLittleMemory) {
  options.images = 1'000'000;
  usable_bytes = std::uint64_t{1} << 30;
  options.usable = [] { return usable_bytes.load(); };
  options.bytes_max = std::uint64_t{100} << 20;
  auto store = ImageStore::join(options).value();
  std::uint64_t next = 0;
  const auto await_keeping = [&](bool is_wanted) {  // the store measures free memory only at times
    const Instant begun = monotonic_now();
    for (bool is_kept = !is_wanted; is_kept != is_wanted;) {
      ASSERT_LT(monotonic_now() - begun, seconds(30));
      is_kept = store->keep(next, image(1, 10));
      next += is_kept ? 1 : 0;
    }
  };
  EXPECT_TRUE(store->keep_second(next++, image(1, 10)));
  usable_bytes = std::uint64_t{3} << 20;  // less than the margin for others, 1/32 of the store
  await_keeping(false);
  EXPECT_FALSE(store->keep_second(next++, image(1, 10)));
  EXPECT_EQ(store->index().free, 0U) << "others offer it nothing";
  store->allow_giving_up(true);
  EXPECT_TRUE(store->keep(next++, image(1, 4000))) << "in place of the second copy";
  usable_bytes = std::uint64_t{1} << 30;
  await_keeping(true);
}

TEST_F(ImageStoreTest, AFolderOfTheSessionCountsOnlyIfItIsThereAndOurs) {
  const char* const before = ::getenv("XDG_RUNTIME_DIR");
  const std::string runtime = std::exchange(options.folder, "");
  ::setenv("XDG_RUNTIME_DIR", runtime.c_str(), 1);
  auto store = ImageStore::join(options);
  ASSERT_TRUE(store.ok()) << store.error().detail;
  EXPECT_TRUE(std::filesystem::exists(runtime + "/mayfly/images-" + to_string(options.key)));
  store.value().reset();
  const bool is_given_away = ::chown(runtime.c_str(), 1, 1) == 0;
  for (const std::string& folder : {runtime + "/absent", is_given_away ? runtime : "/"}) {
    ::setenv("XDG_RUNTIME_DIR", folder.c_str(), 1);
    store = ImageStore::join(options);
    EXPECT_TRUE(store.ok()) << store.error().detail;
    EXPECT_FALSE(std::filesystem::exists(folder + "/mayfly/lock"));
  }
  if (before != nullptr) {
    ::setenv("XDG_RUNTIME_DIR", before, 1);
  } else {
    ::unsetenv("XDG_RUNTIME_DIR");
  }
  options.folder = runtime;
}

TEST_F(ImageStoreTest, WhatAThreadFindsIsCounted) {
  auto store = ImageStore::join(options);
  ASSERT_TRUE(store.ok());
  const std::uint64_t before = bytes_from_stores();
  store.value()->keep(7, image(7, 500));
  (void)store.value()->find(7, 500, space());
  (void)store.value()->find(8, 500, space());
  EXPECT_TRUE(store.value()->find(7, 499, space()).bytes.empty())
      << "the file has another size now";
  EXPECT_EQ(bytes_from_stores() - before, 500U);
}

}  // namespace
}  // namespace mayfly::datasets
