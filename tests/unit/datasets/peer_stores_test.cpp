#include "datasets/peer_stores.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/net/accept.hpp"
#include "base/net/sockets.hpp"

namespace mayfly::datasets {
namespace {

constexpr std::uint64_t kSetImages = 90;
constexpr StoreKey kFirstView{.view = 1, .key = 11};

/// A host that claims to keep all images, and sends each one with bytes that do not match its hash.
class DamagedHost {
 public:
  explicit DamagedHost(std::span<const std::uint32_t> sizes)
      : sizes_(sizes), asked_(sizes.size()), thread_([this] { serve(); }) {}
  ~DamagedHost() {
    is_over_ = true;
    thread_.join();
  }
  DamagedHost(const DamagedHost&) = delete;
  DamagedHost& operator=(const DamagedHost&) = delete;

  [[nodiscard]] std::string address() const {
    return StorePeer::to_text({bound_endpoint(listener_.get()), 5});
  }
  /// The number of requests for an image.
  [[nodiscard]] std::uint64_t asked(std::uint64_t image) const { return asked_[image]; }

 private:
  static Instant soon() { return monotonic_now() + milliseconds(50); }

  void serve() {
    std::vector<UniqueFd> readers;
    while (!is_over_) {
      (void)accept_waiting(listener_.get(), 10,
                           [&](UniqueFd fd) { readers.push_back(std::move(fd)); });
      for (const UniqueFd& reader : readers) {
        StoreRequest request;
        if (receive_exactly(reader.get(), std::as_writable_bytes(std::span(&request, 1)), soon())
                .ok()) {
          answer(reader.get(), request);
        }
      }
    }
  }

  void answer(int reader, const StoreRequest& request) {
    if (request.images == kStoreIndex) {
      std::vector<std::uint64_t> words(2 * StoreIndex::words(sizes_.size()) + 2);
      std::fill_n(words.begin(), StoreIndex::words(sizes_.size()), UINT64_MAX);
      send(reader, UINT64_MAX, std::as_bytes(std::span(words)),
           digest_of(std::as_bytes(std::span(words))));
      return;
    }
    std::vector<std::uint64_t> images(request.images);
    (void)receive_exactly(reader, std::as_writable_bytes(std::span(images)), soon());
    for (const std::uint64_t image : images) {
      asked_[image] += 1;
      send(reader, image, Bytes(sizes_[image]), {1, 2});
    }
  }

  static void send(int reader, std::uint64_t image, ByteSpan bytes, const Digest& digest) {
    const StoreAnswer head{.image = image, .size = bytes.size(), .digest = digest};
    (void)send_exactly(reader, std::as_bytes(std::span(&head, 1)), soon());
    (void)send_exactly(reader, bytes, soon());
  }

  const UniqueFd listener_ = listen_tcp({"127.0.0.1", 0}).value();
  const std::span<const std::uint32_t> sizes_;
  std::vector<std::atomic<std::uint64_t>> asked_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

/// Hosts of one job, in one process.
class PeerStoresTest : public testing::Test {
 protected:
  struct OneHost {
    std::string folder;
    std::shared_ptr<ImageStore> store;
    std::shared_ptr<PeerStores> peers;
  };

  PeerStoresTest() {
    std::iota(sizes.begin(), sizes.end(), 1000U);
    for (std::uint64_t i = 0; i < 3; ++i) {
      std::string pattern = testing::TempDir() + "mayfly-peers-XXXXXX";
      ImageStore::Options options;
      options.folder = ::mkdtemp(pattern.data());
      options.key = {7, 8};
      options.images = kSetImages;
      options.bytes_max = 1'000'000;
      OneHost host;
      host.folder = options.folder;
      host.store = ImageStore::join(options).value();
      host.peers = PeerStores::start(host.store, sizes, "127.0.0.1", seconds(60)).value();
      hosts.push_back(std::move(host));
    }
  }
  ~PeerStoresTest() override {
    for (OneHost& host : hosts) {
      host.peers.reset();
      host.store.reset();
      std::filesystem::remove_all(host.folder);
    }
  }

  static Bytes content(std::uint64_t image) {
    return Bytes(1000 + image, static_cast<std::byte>(image));
  }
  void keep(std::size_t host, std::uint64_t image) const {
    hosts[host].store->keep(image, content(image));
  }
  [[nodiscard]] std::vector<std::string> addresses() const {
    std::vector<std::string> all;
    for (const OneHost& host : hosts) {
      all.push_back(host.peers->address());
    }
    return all;
  }
  void begin(const StoreKey& key) const {
    for (const OneHost& host : hosts) {
      host.peers->begin_view(key, addresses());
    }
  }
  /// Fetches these images for a host, and checks their bytes. Returns how many the others sent.
  [[nodiscard]] std::size_t fetched(std::size_t host, std::uint64_t epoch, std::uint64_t first,
                                    std::uint64_t last) const {
    std::vector<WantedImage> wanted;
    for (std::uint64_t image = first; image < last; ++image) {
      wanted.push_back({.image = image, .size = 1000 + image, .bytes = {}});
    }
    hosts[host].peers->fetch(SampleStream(3, kSetImages), epoch * kSetImages, wanted);
    std::size_t count = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(wanted[i].image, first + i);
      EXPECT_TRUE(wanted[i].bytes.empty() || wanted[i].bytes == content(first + i));
      count += wanted[i].bytes.empty() ? 0 : 1;
    }
    return count;
  }

  [[nodiscard]] std::size_t keepers(std::uint64_t image,
                                    const std::vector<std::size_t>& among) const {
    return static_cast<std::size_t>(std::ranges::count_if(
        among, [&](std::size_t host) { return hosts[host].store->keeps(image); }));
  }
  /// Waits until so many of the hosts in `among` keep each image.
  void await_keepers(std::size_t count, const std::vector<std::size_t>& among,
                     std::uint64_t images = kSetImages) const {
    const Instant begun = monotonic_now();
    for (std::uint64_t image = 0; image < images; ++image) {
      while (keepers(image, among) < count) {
        ASSERT_LT(monotonic_now() - begun, seconds(60)) << image;
        std::this_thread::yield();
      }
    }
  }

  std::vector<std::uint32_t> sizes = std::vector<std::uint32_t>(kSetImages);
  std::vector<OneHost> hosts;
};

TEST_F(PeerStoresTest, AHostGetsWhatAnyOfTheOthersKeeps) {
  for (std::uint64_t image = 0; image < 60; ++image) {
    keep(image % 3, image);
  }
  EXPECT_EQ(fetched(0, 0, 0, 90), 0U) << "there is no view yet";
  begin(kFirstView);
  EXPECT_EQ(fetched(0, 0, 0, 90), 40U) << "its own third is not asked for elsewhere";
  EXPECT_EQ(fetched(1, 0, 0, 30), 20U);
}

TEST_F(PeerStoresTest, AMicrobatchMayBeLargerThanARequest) {
  keep(1, 3);
  begin(kFirstView);
  std::vector<WantedImage> wanted(2 * kStoreRequestMax + 1,
                                  {.image = 3, .size = 1003, .bytes = {}});
  hosts[0].peers->fetch(SampleStream(3, kSetImages), 0, wanted);
  EXPECT_TRUE(std::ranges::all_of(
      wanted, [](const WantedImage& image) { return image.bytes == content(3); }));
}

TEST_F(PeerStoresTest, WhatIsKeptLaterIsKnownInTheNextEpoch) {
  begin(kFirstView);
  EXPECT_EQ(fetched(0, 4, 0, 10), 0U);
  for (std::uint64_t image = 0; image < 10; ++image) {
    keep(1, image);
  }
  EXPECT_EQ(fetched(0, 5, 0, 10), 10U);
}

TEST_F(PeerStoresTest, WhatIsKeptJustAfterAnEpochHasBegunIsKnownSoon) {
  // The worker that copies for the same host asks the other hosts every two seconds.
  const auto copying = PeerStores::start(hosts[0].store, sizes, "127.0.0.1", seconds(60)).value();
  hosts[0].peers->begin_view(kFirstView, {copying->address(), addresses()[0], addresses()[1]});
  hosts[1].peers->begin_view(kFirstView, {copying->address(), addresses()[0], addresses()[1]});
  EXPECT_EQ(fetched(0, 4, 0, 10), 0U);
  for (std::uint64_t image = 0; image < 10; ++image) {
    keep(1, image);
  }
  const Instant begun = monotonic_now();
  while (fetched(0, 4, 0, 10) == 0) {
    ASSERT_LT(monotonic_now() - begun, seconds(4));
    std::this_thread::yield();
  }
}

TEST_F(PeerStoresTest, WhatAHostHasNoRoomForIsKeptByOneThatHasSome) {
  begin(kFirstView);
  EXPECT_EQ(fetched(0, 0, 0, 10), 0U) << "the others say how much room they have";
  for (std::uint64_t image = 0; image < 40; ++image) {
    hosts[0].peers->offer(image, content(image));
  }
  await_keepers(1, {1, 2}, 40);
  std::uint64_t of_second = 0;
  for (std::uint64_t image = 0; image < 40; ++image) {
    EXPECT_EQ(keepers(image, {1, 2}), 1U) << image;
    of_second += hosts[1].store->keeps(image) ? 1 : 0;
  }
  EXPECT_EQ(of_second, 20U) << "they take turns";
  EXPECT_EQ(fetched(0, 1, 0, 40), 40U);
}

TEST_F(PeerStoresTest, AHostThatIsGoneIsMissingAndNothingElse) {
  for (std::uint64_t image = 0; image < 40; ++image) {
    keep(1 + image % 2, image);
  }
  begin(kFirstView);
  EXPECT_EQ(fetched(0, 0, 0, 40), 40U);
  hosts[2].peers.reset();
  EXPECT_EQ(fetched(0, 0, 0, 40), 20U);
  const std::vector<std::string> left = {hosts[0].peers->address(), hosts[1].peers->address(),
                                         "no address", "127.0.0.1:1/xyz"};
  for (const std::size_t host : {0U, 1U}) {
    hosts[host].peers->begin_view({2, 22}, left);
  }
  EXPECT_EQ(fetched(0, 0, 0, 40), 20U);
}

TEST_F(PeerStoresTest, WhatALeaverAloneKeepsIsCopiedByOneOfTheOthers) {
  constexpr std::uint64_t kKept =
      kSetImages - 1;  // while an image is missing, hosts make no second copies
  for (std::uint64_t image = 0; image < kKept; ++image) {
    keep(image % 3, image);
  }
  keep(0, 2);  // an image that the leaver keeps, too
  begin(kFirstView);
  EXPECT_EQ(fetched(0, 0, 0, 90), 59U);
  for (const std::size_t host : {0U, 1U}) {
    hosts[host].peers->begin_view({2, 22}, {hosts[0].peers->address(), hosts[1].peers->address()});
  }
  EXPECT_EQ(fetched(0, 0, 5, 6), 1U) << "the leaver has it, and still serves";
  await_keepers(1, {0, 1}, kKept);
  const StoreIndex of_first = hosts[0].store->index();
  const StoreIndex of_second = hosts[1].store->index();
  for (std::uint64_t image = 0; image < kKept; ++image) {
    EXPECT_NE(of_first.keeps(image), of_second.keeps(image)) << image << " is copied twice";
  }
}

TEST_F(PeerStoresTest, AHostThatJoinsAfterALeaverLeavesNothingUndone) {
  for (std::uint64_t image = 0; image < kSetImages; ++image) {
    keep(0, image);
  }
  // The first host leaves before the last one joins. Both happen before any image is copied.
  for (const std::size_t host : {0U, 1U}) {
    hosts[host].peers->begin_view(kFirstView, {addresses()[0], addresses()[1]});
  }
  hosts[1].peers->begin_view({2, 22}, {addresses()[1]});
  for (const std::size_t host : {1U, 2U}) {
    hosts[host].peers->begin_view({3, 33}, {addresses()[1], addresses()[2]});
  }
  await_keepers(1, {1, 2});
}

TEST_F(PeerStoresTest, ALossCostsNothingIfTheOthersHaveSecondCopies) {
  for (std::uint64_t image = 0; image < kSetImages; ++image) {
    keep(image % 3, image);
  }
  begin(kFirstView);
  await_keepers(2, {0, 1, 2});
  for (std::uint64_t image = 0; image < kSetImages; ++image) {
    EXPECT_EQ(keepers(image, {0, 1, 2}), 2U) << image;
  }
  hosts[2].peers.reset();
  for (const std::size_t host : {0U, 1U}) {
    hosts[host].peers->begin_view({2, 22}, {hosts[0].peers->address(), hosts[1].peers->address()});
  }
  await_keepers(1, {0, 1});
  EXPECT_EQ(fetched(0, 1, 1, 2) + fetched(1, 1, 0, 1), 2U);
  await_keepers(2, {0, 1});  // there is room for two copies of each image
}

TEST_F(PeerStoresTest, AWorkerThatDoesNotCopyFindsALeaverGone) {
  hosts.push_back({hosts[0].folder, hosts[0].store,
                   PeerStores::start(hosts[0].store, sizes, "127.0.0.1", seconds(60)).value()});
  keep(2, 5);
  begin(kFirstView);
  EXPECT_EQ(fetched(3, 0, 5, 6), 1U);
  hosts[3].peers->begin_view({2, 22}, {addresses()[0], addresses()[3]});
  EXPECT_EQ(fetched(3, 0, 5, 6), 1U) << "it still serves";
  const Endpoint leaver = StorePeer::parse(addresses()[2])->endpoint;
  for (const std::size_t host : {0U, 1U, 2U}) {  // 0 and 1 copy, and would ask the leaver, too
    hosts[host].peers.reset();
  }
  const auto silent = listen_tcp(leaver).value();  // never answers, as if the machine were gone
  std::vector<UniqueFd> connections;
  const auto attempts = [&] {
    (void)accept_waiting(silent.get(), 100,
                         [&](UniqueFd fd) { connections.push_back(std::move(fd)); });
    return connections.size();
  };
  EXPECT_EQ(fetched(3, 0, 5, 6), 0U);
  const std::size_t before = attempts();
  std::this_thread::sleep_for(2 * StoreReader::kRetryFirst);
  EXPECT_EQ(fetched(3, 0, 5, 6), 0U);
  EXPECT_EQ(attempts(), before) << "it is not asked for images any more";
}

TEST_F(PeerStoresTest, WhatAHostSendsDamagedIsNotCopiedForEver) {
  DamagedHost damaged(sizes);
  hosts[0].peers->begin_view(kFirstView, {addresses()[0], damaged.address()});
  const Instant begun = monotonic_now();
  for (std::uint64_t image = 0; image < kSetImages; ++image) {
    while (damaged.asked(image) < 2) {
      ASSERT_LT(monotonic_now() - begun, seconds(60)) << image;
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
  std::this_thread::sleep_for(seconds(1));
  for (std::uint64_t image = 0; image < kSetImages; ++image) {
    EXPECT_EQ(damaged.asked(image), 2U) << image;
  }
}

TEST_F(PeerStoresTest, OfTwoHostsThatKeepAnImageTheSecondIsAskedIfTheFirstIsGone) {
  for (std::uint64_t image = 0; image < 40; ++image) {
    keep(1, image);
    keep(2, image);
  }
  begin(kFirstView);
  EXPECT_EQ(fetched(0, 0, 0, 40), 40U);
  hosts[2].peers.reset();
  EXPECT_EQ(fetched(0, 0, 0, 40), 40U);
}

TEST_F(PeerStoresTest, WhatAChangeOfViewInterruptsIsFetchedInTheNextView) {
  keep(1, 3);
  begin(kFirstView);
  for (std::uint64_t view = 2; view < 200; ++view) {
    std::thread other([&] {
      hosts[0].peers->end_view(view - 1);
      begin({view, view});
    });
    EXPECT_EQ(fetched(0, 0, 3, 4), 1U) << view;
    other.join();
  }
}

TEST_F(PeerStoresTest, NobodyIsAskedWhenTheViewIsOver) {
  keep(1, 3);
  begin(kFirstView);
  EXPECT_EQ(fetched(0, 0, 3, 4), 1U);
  hosts[0].peers->end_view(0);
  EXPECT_EQ(fetched(0, 0, 3, 4), 1U) << "an older one ended";
  hosts[0].peers->end_view(1);
  EXPECT_EQ(fetched(0, 0, 3, 4), 0U);
}

TEST_F(PeerStoresTest, ManyThreadsMayFetchWhileViewsChange) {
  for (std::uint64_t image = 0; image < kSetImages; ++image) {
    keep(1 + image % 2, image);
  }
  begin(kFirstView);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 100; ++i) {
        (void)fetched(0, i / 10, (i + t) % 80, (i + t) % 80 + 10);
      }
    });
  }
  for (std::uint64_t view = 2; view < 20; ++view) {
    begin({view, view});
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace mayfly::datasets
