// The contract of channels, for shared memory, Unix-domain sockets and TCP.

#include "collectives/tcp/channel.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/tcp/shm_pipe.hpp"

namespace mayfly::collectives {
namespace {

struct Ends {
  std::unique_ptr<Channel> a;
  std::unique_ptr<Channel> b;
};

std::pair<UniqueFd, UniqueFd> socket_pair() {
  int fds[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Ends unix_ends() {
  auto [a, b] = socket_pair();
  return {make_socket_channel(std::move(a)), make_socket_channel(std::move(b))};
}

Ends shared_ends() {
  auto [a, b] = socket_pair();
  UniqueFd fd;
  SealedMemory created = SealedMemory::create(kShmChannelBytes, fd).value();
  SealedMemory mapped = SealedMemory::map(fd.get(), kShmChannelBytes).value();
  return {make_shm_channel(std::move(a), std::move(created), true),
          make_shm_channel(std::move(b), std::move(mapped), false)};
}

Ends tcp_ends() {
  const UniqueFd listener = listen_tcp({"127.0.0.1", 0}).value();
  const auto [host, port] = bound_endpoint(listener.get());
  UniqueFd a = start_connect_tcp({host, port}).value();
  UniqueFd b;
  while (!b.valid()) {
    b = accept_one(listener.get());
  }
  return {make_socket_channel(std::move(a)), make_socket_channel(std::move(b))};
}

struct Way {
  const char* name;
  Ends (*make)();
};

class ChannelContract : public testing::TestWithParam<Way> {
 protected:
  Ends ends_ = GetParam().make();
  std::vector<std::byte> scratch_ = std::vector<std::byte>(64 * 1024);

  static bool sleep(Channel& channel, std::size_t wanted, bool room) {
    pollfd watched{};
    if (channel.watch(wanted, room, watched)) {
      EXPECT_GT(::poll(&watched, 1, 10000), 0) << "nothing ended the sleep";
      return channel.woken(watched.revents);
    }
    return false;
  }
  static ByteSpan as_bytes(const std::vector<std::int32_t>& numbers) {
    return std::as_bytes(std::span(numbers));
  }
};

TEST_P(ChannelContract, BytesArriveInBothDirections) {
  const std::string hello = "hello";
  std::array<std::byte, 16> into{};
  for (Channel* from : {ends_.a.get(), ends_.b.get()}) {
    Channel* const to = from == ends_.a.get() ? ends_.b.get() : ends_.a.get();
    EXPECT_EQ(from->send(std::as_bytes(std::span(hello)), false).bytes, hello.size());
    std::size_t got = 0;
    while (got < hello.size()) {
      got += to->receive(into).bytes;
    }
    EXPECT_EQ(std::memcmp(into.data(), hello.data(), hello.size()), 0);
    EXPECT_FALSE(to->receive(into).closed);
  }
}

// The numbers wrap around the ring, and start at an odd byte.
TEST_P(ChannelContract, NumbersAreReducedWholeWhereverTheyBegin) {
  constexpr std::size_t kCount = 300000;
  std::vector<std::int32_t> numbers(kCount);
  std::iota(numbers.begin(), numbers.end(), -1000);
  std::vector<std::int32_t> sums(kCount, 5);
  const std::byte odd{7};
  ASSERT_EQ(ends_.a->send({&odd, 1}, true).bytes, 1U);
  std::byte first{};
  const ByteSpan all = as_bytes(numbers);
  const auto into = std::as_writable_bytes(std::span(sums));
  std::size_t sent = 0;
  std::size_t reduced = 0;
  while (ends_.b->receive({&first, 1}).bytes == 0) {
    sent += ends_.a->send(all.subspan(sent, 4096), false).bytes;
  }
  while (reduced < all.size()) {
    sent += ends_.a->send(all.subspan(sent), false).bytes;
    const Moved got = ends_.b->receive_and_reduce(into.subspan(reduced),
                                                  {DataType::kInt32, ReduceOp::kSum}, scratch_);
    ASSERT_FALSE(got.closed);
    ASSERT_EQ(got.bytes % sizeof(std::int32_t), 0U);
    reduced += got.bytes;
  }
  EXPECT_EQ(first, odd);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(sums[i], numbers[i] + 5);
  }
}

TEST_P(ChannelContract, ASleepEndsWhenThereAreBytesOrRoom) {
  const std::vector<std::byte> block(64 * 1024);
  while (ends_.a->send(block, false).bytes > 0) {
  }
  pollfd watched{};
  EXPECT_TRUE(ends_.a->watch(0, true, watched));
  EXPECT_EQ(::poll(&watched, 1, 0), 0);  // full: no room
  EXPECT_FALSE(sleep(*ends_.b, 1, false));
  std::vector<std::byte> into(64 * 1024);
  while (ends_.b->receive(into).bytes > 0) {
  }
  EXPECT_FALSE(sleep(*ends_.a, 0, true));
  EXPECT_GT(ends_.a->send(block, false).bytes, 0U);
}

// An operation that waits for neither bytes nor room also learns, each time, that the other side
// has ended.
TEST_P(ChannelContract, EachSleepEndsWithTheWordThatTheOtherSideIsGone) {
  ends_.a.reset();
  EXPECT_TRUE(sleep(*ends_.b, 1, false));
  EXPECT_TRUE(sleep(*ends_.b, 0, false));
  EXPECT_TRUE(sleep(*ends_.b, 0, false));
}

TEST_P(ChannelContract, WhatWasSentBeforeTheOtherSideWentIsStillReceived) {
  const std::array<std::byte, 3> last{std::byte{1}, std::byte{2}, std::byte{3}};
  ASSERT_EQ(ends_.a->send(last, false).bytes, last.size());
  ends_.a.reset();
  std::array<std::byte, 8> into{};
  std::size_t got = 0;
  bool closed = false;
  while (!closed) {
    const Moved moved = ends_.b->receive(std::span(into).subspan(got));
    got += moved.bytes;
    closed = moved.closed;
    if (!closed && moved.bytes == 0) {
      (void)sleep(*ends_.b, 1, false);
    }
  }
  EXPECT_EQ(got, last.size());
}

INSTANTIATE_TEST_SUITE_P(Ways, ChannelContract,
                         testing::Values(Way{"Shared", shared_ends}, Way{"Unix", unix_ends},
                                         Way{"Tcp", tcp_ends}),
                         [](const auto& way) { return std::string(way.param.name); });

TEST(ShmChannel, RefusesADescriptorThatIsNoMemory) {
  auto [a, b] = socket_pair();
  const Result<SealedMemory> mapped = SealedMemory::map(a.get(), kShmChannelBytes);
  ASSERT_FALSE(mapped.ok());
  EXPECT_EQ(mapped.error().code, Errc::kCorrupt);
}

}  // namespace
}  // namespace mayfly::collectives
