#include "collectives/parameter_server/message_stream.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <vector>

namespace mayfly::parameter_server {
namespace {

constexpr std::size_t kManyElements = std::size_t{1} << 20;  // more than a socket takes at once

struct StreamEnds {
  UniqueFd one, other;
};

StreamEnds socket_pair() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// Sends the one message that is queued in `from` to `to`. Returns its payload.
std::vector<float> exchange(MessageStream& from, MessageStream& to) {
  std::vector<float> got(kManyElements);
  bool is_whole = false;
  while (!is_whole) {
    EXPECT_TRUE(from.flush().ok());
    const Result<void> received = to.receive(
        [&got](const Header&) {
          return Result<PayloadTarget>({std::as_writable_bytes(std::span(got)), {}});
        },
        [&is_whole](const Header&) {
          is_whole = true;
          return Result<void>();
        });
    EXPECT_TRUE(received.ok());
    is_whole = is_whole || !received.ok();
  }
  return got;
}

TEST(MessageStream, WhatIsUnderWayMayChangeOnceItIsCopied) {
  StreamEnds ends = socket_pair();
  Bytes spare;
  spare.reserve(kManyElements * sizeof(float));
  const std::byte* const memory = spare.data();
  MessageStream from(std::move(ends.one), 0, &spare);
  MessageStream to(std::move(ends.other), kManyElements * sizeof(float));
  std::vector<float> values(kManyElements);
  for (const float value : {1.0F, 2.0F, 3.0F}) {
    std::ranges::fill(values, value);
    Header header;
    header.type = MessageType::kParameters;
    from.send(header, std::as_bytes(std::span(values)));
    ASSERT_TRUE(from.flush().ok());
    ASSERT_TRUE(from.wants_to_send()) << "the socket took it all; nothing is shown";
    from.keep_copies();
    std::ranges::fill(values, -1.0F);
    const std::vector<float> got = exchange(from, to);
    EXPECT_EQ(std::ranges::count(got, value), static_cast<std::ptrdiff_t>(kManyElements));
    EXPECT_FALSE(spare.empty()) << "nothing was copied";
    EXPECT_EQ(spare.data(), memory) << "the copy had memory of its own";
  }
}

TEST(MessageStream, CountsTheBytesThatTheSocketHasTaken) {
  StreamEnds ends = socket_pair();
  MessageStream from(std::move(ends.one), 0);
  MessageStream to(std::move(ends.other), kManyElements * sizeof(float));
  const std::vector<float> values(kManyElements);
  Header header;
  header.type = MessageType::kState;
  from.send(header, std::as_bytes(std::span(values)));
  EXPECT_EQ(from.bytes_sent(), 0U);
  ASSERT_TRUE(from.flush().ok());
  ASSERT_TRUE(from.wants_to_send()) << "the socket took it all; nothing is shown";
  const std::uint64_t before = from.bytes_sent();
  EXPECT_GT(before, 0U);
  (void)exchange(from, to);
  EXPECT_GT(from.bytes_sent(), before);
  EXPECT_EQ(from.bytes_sent(), kHeaderBytes + kManyElements * sizeof(float));
}

TEST(MessageStream, WithdrawsWhatHasNotBegunToBeSent) {
  StreamEnds ends = socket_pair();
  MessageStream from(std::move(ends.one), 0);
  MessageStream to(std::move(ends.other), kManyElements * sizeof(float));
  const std::vector<float> values(kManyElements);
  const auto send = [&](MessageType type, std::uint64_t question) {
    Header header;
    header.type = type;
    header.question = question;
    from.send(header, std::as_bytes(std::span(values)));
  };
  send(MessageType::kState, 1);
  ASSERT_TRUE(from.flush().ok());
  ASSERT_TRUE(from.wants_to_send()) << "the socket took it all; nothing is shown";
  send(MessageType::kState, 2);
  send(MessageType::kParameters, 3);
  EXPECT_EQ(from.withdraw(MessageType::kState), kHeaderBytes + kManyElements * sizeof(float));
  send(MessageType::kState, 4);
  std::vector<std::uint64_t> got;
  while (got.size() < 3) {
    ASSERT_TRUE(from.flush().ok());
    ASSERT_TRUE(to.receive([](const Header&) { return Result<PayloadTarget>(PayloadTarget{}); },
                           [&got](const Header& header) {
                             got.push_back(header.question);
                             return Result<void>();
                           })
                    .ok());
  }
  EXPECT_FALSE(from.wants_to_send());
  EXPECT_EQ(got, (std::vector<std::uint64_t>{1, 3, 4})) << "what is under way arrives";
}

TEST(MessageStream, SendsOnlyTheHeaderOfWhatLiesInASlot) {
  StreamEnds ends = socket_pair();
  MessageStream from(std::move(ends.one), 0);
  MessageStream to(std::move(ends.other), kManyElements * sizeof(float));
  const std::vector<float> values(kManyElements);
  Header header;
  header.type = MessageType::kPush;
  header.slot = 1;
  from.send(header, std::as_bytes(std::span(values)), {}, true);
  header.slot = 2;
  from.send(header, std::as_bytes(std::span(values)));
  ASSERT_TRUE(from.flush().ok());
  EXPECT_FALSE(from.wants_to_send());
  std::vector<Header> got;
  for (std::size_t turn = 1; turn <= 2; ++turn) {  // each payload ends a call
    ASSERT_TRUE(to.receive([](const Header&) { return Result<PayloadTarget>(PayloadTarget{}); },
                           [&got](const Header& one) {
                             got.push_back(one);
                             return Result<void>();
                           })
                    .ok());
    ASSERT_EQ(got.size(), turn);
  }
  EXPECT_EQ(got[0].slot, 1U);
  EXPECT_EQ(got[0].payload_bytes, kManyElements * sizeof(float));
  EXPECT_EQ(got[0].payload_check, payload_hash(std::as_bytes(std::span(values)), {}));
  EXPECT_EQ(got[1].slot, 2U);
}

TEST(MessageStream, RefusesARunOfBytesForWhatLiesInASlot) {
  StreamEnds ends = socket_pair();
  MessageStream from(std::move(ends.one), 0);
  MessageStream to(std::move(ends.other), kManyElements * sizeof(float));
  std::vector<float> values(kManyElements);
  Header header;
  header.type = MessageType::kPush;
  header.slot = 1;
  from.send(header, std::as_bytes(std::span(values)));
  ASSERT_TRUE(from.flush().ok());
  const Result<void> received = to.receive(
      [&](const Header&) {
        return Result<PayloadTarget>({std::as_writable_bytes(std::span(values)), {}});
      },
      [](const Header&) { return Result<void>(); });
  EXPECT_FALSE(received.ok());
}

TEST(MessageStream, HandsADescriptorOverWithWhatIsSentNextAndOnce) {
  StreamEnds ends = socket_pair();
  MessageStream from(std::move(ends.one), 0);
  MessageStream to(std::move(ends.other), 0);
  const UniqueFd sent(::memfd_create("test", MFD_CLOEXEC));
  from.hand_over(sent.get());
  const auto say_hello = [&] {
    Header header;
    header.type = MessageType::kHello;
    from.send(header);
    EXPECT_TRUE(from.flush().ok());
    EXPECT_TRUE(to.receive([](const Header&) { return Result<PayloadTarget>(PayloadTarget{}); },
                           [](const Header&) { return Result<void>(); })
                    .ok());
  };
  say_hello();
  const UniqueFd got = to.take_descriptor();
  struct stat one {};
  struct stat other {};
  ASSERT_EQ(::fstat(sent.get(), &one), 0);
  ASSERT_EQ(::fstat(got.get(), &other), 0);
  EXPECT_EQ(one.st_ino, other.st_ino);
  say_hello();
  EXPECT_FALSE(to.take_descriptor().valid());
}

}  // namespace
}  // namespace mayfly::parameter_server
