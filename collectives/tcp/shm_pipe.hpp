#pragma once

// A one-way stream of bytes between two processes through memory they share: a ring with one writer
// and one reader, as in Lamport's "Proving the Correctness of Multiprocess Programs" (1977). It
// never blocks; a side that finds it full or empty arms a flag, and the other side is told when to
// ring a bell (see shm_channel). The other process is not trusted to keep its counters sane: a
// position that cannot be is reported, never followed.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.hpp"

namespace mayfly::collectives {

/// What lies in shared memory, before the ring's bytes; starts as zeros. Each counter is written by
/// one side and has a cache line of its own.
struct ShmPipeHeader {
  alignas(64) std::atomic<std::uint64_t> written;  ///< bytes, by the writer
  alignas(64) std::atomic<std::uint64_t> read;     ///< bytes, by the reader
  /// Bytes, or bytes of room, that a sleeping side waits for; 0: it does not sleep.
  alignas(64) std::atomic<std::uint32_t> reader_wants;
  alignas(64) std::atomic<std::uint32_t> writer_wants;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Bytes of ring per direction, a power of two: fits twice into a second-level cache, so that the
/// reader finds the bytes where the writer has put them.
inline constexpr std::size_t kShmRingBytes = 256 * 1024;
/// Memory of one pipe.
inline constexpr std::size_t kShmPipeBytes = sizeof(ShmPipeHeader) + kShmRingBytes;
/// Memory of a channel: the pipe from the side that made it, and from here on the one to that side.
inline constexpr std::size_t kShmSecondPipe = (kShmPipeBytes + 4095) / 4096 * 4096;
inline constexpr std::size_t kShmChannelBytes = 2 * kShmSecondPipe;

/// The writer's end.
class ShmWriter {
 public:
  /// `memory`: kShmPipeBytes, 64-byte aligned, outlives this.
  explicit ShmWriter(std::byte* memory);

  /// Copies in what fits; the count, or nothing that makes sense (see broken()).
  [[nodiscard]] std::size_t write(ByteSpan data);
  /// True if the reader sleeps and what it waits for is there; asking disarms it then.
  [[nodiscard]] bool take_reader_alarm();
  /// Asks to be woken when a good part of the ring is free. False: there is room already.
  [[nodiscard]] bool arm();
  /// The other side has written nonsense into its counter.
  [[nodiscard]] bool broken() const { return broken_; }

 private:
  [[nodiscard]] std::size_t room();

  ShmPipeHeader* header_;
  std::byte* ring_;
  std::uint64_t written_ = 0;
  bool broken_ = false;
};

/// The reader's end.
class ShmReader {
 public:
  explicit ShmReader(std::byte* memory);

  /// Bytes that can be read.
  [[nodiscard]] std::size_t available();
  /// The bytes that lie in one piece, at most `limit`; may be fewer than are there.
  [[nodiscard]] ByteSpan peek(std::size_t limit);
  /// The first `bytes` of what peek() showed are done with.
  void consume(std::size_t bytes);
  /// True if the writer sleeps and what it waits for is there; asking disarms it then.
  [[nodiscard]] bool take_writer_alarm();
  /// Asks to be woken when `wanted` bytes (or a good part of the ring) are there. False: they are.
  [[nodiscard]] bool arm(std::size_t wanted);
  [[nodiscard]] bool broken() const { return broken_; }

 private:
  ShmPipeHeader* header_;
  const std::byte* ring_;
  std::uint64_t read_ = 0;
  bool broken_ = false;
};

}  // namespace mayfly::collectives
