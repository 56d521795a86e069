#include "collectives/tcp/shm_pipe.hpp"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "base/aligned_buffer.hpp"

namespace mayfly::collectives {
namespace {

struct Pipe {
  Pipe() : memory(kShmPipeBytes), writer(memory.data()), reader(memory.data()) {}

  AlignedBuffer<std::byte> memory;  // zeros
  ShmWriter writer;
  ShmReader reader;

  ShmPipeHeader& header() { return *reinterpret_cast<ShmPipeHeader*>(memory.data()); }
};

std::vector<std::byte> bytes_of(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> out(count);
  for (std::byte& b : out) {
    b = static_cast<std::byte>(random());
  }
  return out;
}

std::vector<std::byte> read_all(ShmReader& reader, std::size_t limit) {
  std::vector<std::byte> out;
  while (out.size() < limit) {
    const ByteSpan there = reader.peek(limit - out.size());
    if (there.empty()) {
      break;
    }
    out.insert(out.end(), there.begin(), there.end());
    reader.consume(there.size());
  }
  return out;
}

TEST(ShmPipe, BytesComeOutAsTheyWentInAroundTheRingAnyNumberOfTimes) {
  Pipe pipe;
  std::mt19937 random(7);
  const std::vector<std::byte> sent = bytes_of(5 * kShmRingBytes + 13, 1);
  std::vector<std::byte> received;
  std::size_t at = 0;
  while (received.size() < sent.size()) {
    const std::size_t chunk = std::min<std::size_t>(random() % 100000, sent.size() - at);
    at += pipe.writer.write(ByteSpan(sent).subspan(at, chunk));
    const std::vector<std::byte> part = read_all(pipe.reader, random() % 100000);
    received.insert(received.end(), part.begin(), part.end());
  }
  EXPECT_EQ(received, sent);
}

TEST(ShmPipe, TakesWhatFitsAndNoMore) {
  Pipe pipe;
  const std::vector<std::byte> data = bytes_of(kShmRingBytes + 1, 2);
  EXPECT_EQ(pipe.writer.write(data), kShmRingBytes);
  EXPECT_EQ(pipe.writer.write(data), 0U);
  EXPECT_EQ(read_all(pipe.reader, 10).size(), 10U);
  EXPECT_EQ(pipe.writer.write(data), 10U);
}

TEST(ShmPipe, AReaderIsWokenOnceAndOnlyWhenWhatItWantsIsThere) {
  Pipe pipe;
  EXPECT_TRUE(pipe.reader.arm(100));
  (void)pipe.writer.write(bytes_of(99, 3));
  EXPECT_FALSE(pipe.writer.take_reader_alarm());
  (void)pipe.writer.write(bytes_of(1, 3));
  EXPECT_TRUE(pipe.writer.take_reader_alarm());
  EXPECT_FALSE(pipe.writer.take_reader_alarm());
  EXPECT_FALSE(pipe.reader.arm(100));  // they have arrived: no reason to sleep
}

TEST(ShmPipe, AWriterIsWokenWhenAGoodPartIsFree) {
  Pipe pipe;
  const std::vector<std::byte> data = bytes_of(kShmRingBytes, 4);
  (void)pipe.writer.write(data);
  EXPECT_TRUE(pipe.writer.arm());
  (void)read_all(pipe.reader, 100);
  EXPECT_FALSE(pipe.reader.take_writer_alarm());
  (void)read_all(pipe.reader, kShmRingBytes / 2);
  EXPECT_TRUE(pipe.reader.take_writer_alarm());
  EXPECT_FALSE(pipe.writer.arm());
}

TEST(ShmPipe, CountersThatCannotBeAreReportedAndNeverFollowed) {
  Pipe pipe;
  pipe.header().written.store(kShmRingBytes + 1);
  EXPECT_TRUE(pipe.reader.peek(10).empty());
  EXPECT_TRUE(pipe.reader.broken());
  Pipe other;
  other.header().read.store(5);  // more than was ever written
  EXPECT_EQ(other.writer.write(bytes_of(1, 5)), 0U);
  EXPECT_TRUE(other.writer.broken());
}

// Goal: no byte is lost and no thread sleeps for ever. Method: a writer and a reader thread that
// only an alarm wakes, with the random chunk sizes of real streams.
TEST(ShmPipe, TwoThreadsThatSleepOnAlarmsMoveEveryByte) {
  Pipe pipe;
  std::atomic<bool> reader_bell{false};
  std::atomic<bool> writer_bell{false};
  const std::vector<std::byte> sent = bytes_of(20 * kShmRingBytes + 5, 6);
  std::vector<std::byte> received;
  std::thread writer([&] {
    for (std::size_t at = 0; at < sent.size();) {
      const std::size_t wrote = pipe.writer.write(ByteSpan(sent).subspan(at));
      at += wrote;
      if (pipe.writer.take_reader_alarm()) {
        reader_bell.store(true);
      }
      if (wrote == 0 && pipe.writer.arm()) {
        while (!writer_bell.exchange(false)) {
          std::this_thread::yield();
        }
      }
    }
  });
  while (received.size() < sent.size()) {
    const std::vector<std::byte> part = read_all(pipe.reader, 70000);
    received.insert(received.end(), part.begin(), part.end());
    if (pipe.reader.take_writer_alarm()) {
      writer_bell.store(true);
    }
    const std::size_t missing = sent.size() - received.size();
    if (part.empty() && pipe.reader.arm(std::min<std::size_t>(missing, 50000))) {
      while (!reader_bell.exchange(false)) {
        std::this_thread::yield();
      }
    }
  }
  writer.join();
  EXPECT_EQ(received, sent);
}

}  // namespace
}  // namespace mayfly::collectives
