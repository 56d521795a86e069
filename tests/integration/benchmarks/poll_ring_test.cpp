#include "benchmarks/peers/poll_ring.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace mayfly::peers {
namespace {

/// Runs `body(rank, ring)` on connected rings, one thread each.
template <typename Body>
void on_ring(std::uint32_t size, const Body& body) {
  std::vector<std::unique_ptr<PollRing>> rings;
  std::vector<std::string> addresses;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    rings.push_back(PollRing::listen().value());
    addresses.push_back(rings.back()->address());
  }
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const Result<void> connected = rings[rank]->connect(rank, addresses);
      ASSERT_TRUE(connected.ok()) << connected.error().detail;
      body(rank, *rings[rank]);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

template <typename T>
void expect_right_sums(std::uint32_t size, const std::vector<std::size_t>& counts) {
  on_ring(size, [&](std::uint32_t rank, PollRing& ring) {
    for (const std::size_t count : counts) {
      std::vector<T> data(count);
      for (std::size_t i = 0; i < count; ++i) {
        data[i] = static_cast<T>(i % 1000 + 7 * rank);
      }
      const Result<void> done = ring.sum(data.data(), count);
      ASSERT_TRUE(done.ok()) << done.error().detail;
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < count; ++i) {
        wrong += data[i] == static_cast<T>(size * (i % 1000) + 7 * size * (size - 1) / 2) ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0u) << count << " elements, " << size << " ranks";
    }
  });
}

TEST(PollRing, SumsOfAnyLengthAreRight) {
  for (const std::uint32_t size : {1U, 2U, 3U, 5U}) {
    expect_right_sums<float>(size, {1, 2, 3, 4, 1000, 16384, 16385, 1'000'003});
    expect_right_sums<std::int32_t>(size, {5, 70'001});
  }
}

TEST(PollRing, VectorsLargerThanTheSocketsBuffersAreRight) {
  expect_right_sums<float>(3, {1000, 5'000'001, 1000});
}

TEST(PollRing, LostRankIsAnError) {
  on_ring(2, [](std::uint32_t rank, PollRing& ring) {
    std::vector<float> data(1000, 1.0F);
    ASSERT_TRUE(ring.sum(data.data(), data.size()).ok());
    if (rank == 0) {
      ring.disconnect();
    } else {
      EXPECT_EQ(ring.sum(data.data(), data.size()).error().code, Errc::kPeerLost);
    }
  });
}

}  // namespace
}  // namespace mayfly::peers
