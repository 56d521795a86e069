#include "elastic/net/frame.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/random.hpp"

namespace mayfly::elastic {
namespace {

void give(FrameReader& reader, ByteSpan bytes) {
  while (!bytes.empty()) {
    const std::span<std::byte> space = reader.space();
    const std::size_t count = std::min(space.size(), bytes.size());
    std::memcpy(space.data(), bytes.data(), count);
    reader.filled(count);
    bytes = bytes.subspan(count);
  }
}

Bytes raw_length(std::uint32_t length) {
  Bytes bytes(4);
  std::memcpy(bytes.data(), &length, 4);
  return bytes;
}

std::vector<Message> sample_messages() {
  std::vector<Message> messages{Heartbeat{}, Stop{ViewId{7}, true},
                                StoreSet{ViewId{7}, "key", Bytes(50'000, std::byte{3})}};
  messages.emplace_back(Report{Bytes(2u << 20, std::byte{9})});
  messages.emplace_back(Progress{ViewId{7}, Step{12}, 1.5f});
  return messages;
}

TEST(FrameReader, ReturnsTheMessagesHoweverTheStreamIsCut) {
  Bytes stream;
  const std::vector<Message> messages = sample_messages();
  for (const Message& message : messages) {
    const Bytes frame = to_frame(message);
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random{CounterRandom(seed)};
    FrameReader reader(kMessageBytesMax);
    std::vector<Message> received;
    ByteSpan left(stream);
    while (!left.empty()) {
      const std::size_t piece = std::min<std::size_t>(left.size(), 1 + random.below(100'000));
      give(reader, left.first(piece));
      left = left.subspan(piece);
      for (auto next = reader.next(); next.value(); next = reader.next()) {
        received.push_back(*next.value());
      }
    }
    EXPECT_EQ(received, messages);
  }
}

TEST(FrameReader, AFrameBeyondTheLimitIsRefusedBeforeItsBytesArrive) {
  FrameReader reader(kUnauthenticatedFrameBytesMax);
  give(reader, raw_length(kUnauthenticatedFrameBytesMax + 1));
  EXPECT_EQ(reader.next().error().code, Errc::kCorrupt);
}

TEST(FrameReader, ARefusedLengthReservesNoMemory) {
  FrameReader reader(kUnauthenticatedFrameBytesMax);
  give(reader, raw_length(0xffff'ffff));
  EXPECT_LE(reader.space().size(), kUnauthenticatedFrameBytesMax);
}

TEST(FrameReader, TheLimitCanBeRaised) {
  const Bytes frame = to_frame(Report{Bytes(100'000)});
  FrameReader reader(kUnauthenticatedFrameBytesMax);
  reader.set_limit(kMessageBytesMax);
  give(reader, frame);
  EXPECT_TRUE(reader.next().value());
}

TEST(FrameReader, AnEmptyFrameIsCorrupt) {
  FrameReader reader(kMessageBytesMax);
  give(reader, raw_length(0));
  EXPECT_EQ(reader.next().error().code, Errc::kCorrupt);
}

TEST(FrameReader, AFrameThatIsNoMessageIsCorrupt) {
  FrameReader reader(kMessageBytesMax);
  give(reader, raw_length(3));
  EXPECT_FALSE(reader.next().value());
  give(reader, Bytes(3, std::byte{0xff}));
  EXPECT_EQ(reader.next().error().code, Errc::kCorrupt);
}

TEST(FrameReader, RandomBytesNeverYieldMoreThanErrors) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random{CounterRandom(seed)};
    Bytes junk(random.below(4000));
    for (std::byte& b : junk) {
      b = static_cast<std::byte>(random.below(256));
    }
    FrameReader reader(kUnauthenticatedFrameBytesMax);
    give(reader, junk);
    for (auto next = reader.next(); next.ok() && next.value(); next = reader.next()) {
    }
  }
}

}  // namespace
}  // namespace mayfly::elastic
