#include "datasets/peer_stores.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace mayfly::datasets {
namespace {

constexpr std::uint64_t kSetImages = 90;
constexpr StoreKey kFirstView{.view = 1, .key = 11};

/// Hosts of one job, in one process.
class PeerStoresTest : public testing::Test {
 protected:
  struct OneHost {
    std::string folder;
    std::shared_ptr<ImageStore> store;
    std::shared_ptr<PeerStores> peers;
  };

  PeerStoresTest() {
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
      host.peers = PeerStores::start(host.store, "127.0.0.1", seconds(60)).value();
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
  /// How many of these images a host gets from the others; each is right.
  [[nodiscard]] std::size_t fetched(std::size_t host, std::uint64_t epoch, std::uint64_t first,
                                    std::uint64_t last) const {
    std::vector<WantedImage> wanted;
    for (std::uint64_t image = first; image < last; ++image) {
      wanted.push_back({.image = image, .size = 1000 + image, .bytes = {}});
    }
    hosts[host].peers->fetch(epoch, wanted);
    std::size_t count = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(wanted[i].image, first + i);
      EXPECT_TRUE(wanted[i].bytes.empty() || wanted[i].bytes == content(first + i));
      count += wanted[i].bytes.empty() ? 0 : 1;
    }
    return count;
  }

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

TEST_F(PeerStoresTest, WhatIsKeptLaterIsKnownInTheNextEpoch) {
  begin(kFirstView);
  EXPECT_EQ(fetched(0, 4, 0, 10), 0U);
  for (std::uint64_t image = 0; image < 10; ++image) {
    keep(1, image);
  }
  EXPECT_EQ(fetched(0, 5, 0, 10), 10U);
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
