#pragma once

// A one-way stream of bytes between two processes through memory they share: a ring with one writer
// and one reader, as in Lamport's "Proving the Correctness of Multiprocess Programs" (1977). It
// never blocks; a side that finds it full or empty sets a flag, by which the other side knows that
// it must wake it (make_shm_channel() has the socket for that). The other process is not trusted:
// an impossible position in its counter is reported, never used. One thread per side.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.hpp"

namespace mayfly::collectives {

/// The header of the shared memory, before the ring's bytes; all zeros at first. Each counter is
/// written by one side and has a cache line of its own.
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

  /// Copies as many bytes as fit and returns their number, which has no meaning if broken().
  [[nodiscard]] std::size_t write(ByteSpan data);
  /// True if the reader sleeps and the bytes for which it waits have arrived; its flag is then
  /// cleared, and the caller must wake it.
  [[nodiscard]] bool take_reader_alarm();
  /// Asks to be woken when a good part of the ring is free. False: there is enough room already.
  [[nodiscard]] bool arm();
  /// The other side has written an impossible value into its counter.
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
  /// The next bytes in one contiguous piece, at most `limit`; there may be more than these.
  [[nodiscard]] ByteSpan peek(std::size_t limit);
  /// The first `bytes` of the result of peek() are not needed any more.
  void consume(std::size_t bytes);
  /// True if the writer sleeps and the room for which it waits is free; its flag is then cleared,
  /// and the caller must wake it.
  [[nodiscard]] bool take_writer_alarm();
  /// Asks to be woken when `wanted` bytes (or a good part of the ring) have arrived. False: they
  /// have arrived already.
  [[nodiscard]] bool arm(std::size_t wanted);
  [[nodiscard]] bool broken() const { return broken_; }

 private:
  ShmPipeHeader* header_;
  const std::byte* ring_;
  std::uint64_t read_ = 0;
  bool broken_ = false;
};

}  // namespace mayfly::collectives
