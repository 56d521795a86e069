#include "collectives/tcp/shm_pipe.hpp"

#include <algorithm>
#include <cstring>

namespace mayfly::collectives {
namespace {

constexpr std::size_t kMask = kShmRingBytes - 1;
static_assert((kShmRingBytes & kMask) == 0);

// The writer publishes this many bytes at a time, and the reader frees as many, so that both work
// at once.
constexpr std::size_t kStepBytes = 32 * 1024;
// A side never waits for more than this, so that the other side can work meanwhile.
constexpr std::size_t kWantedMax = kShmRingBytes / 2;

// No wake-up may be lost. The side that wants to sleep writes its flag and then looks again for
// bytes (or room); the other side publishes bytes (or room) and then looks for the flag. The two
// fences order each store before the load that follows, so at least one side sees the store of the
// other (Dekker's algorithm).
bool take(std::atomic<std::uint32_t>& wish, std::size_t there) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const std::uint32_t wanted = wish.load(std::memory_order_relaxed);
  return wanted != 0 && there >= wanted && wish.exchange(0, std::memory_order_acq_rel) != 0;
}

std::size_t post(std::atomic<std::uint32_t>& wish, std::size_t wanted) {
  const std::size_t limited = std::min(wanted, kWantedMax);
  wish.store(static_cast<std::uint32_t>(limited), std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return limited;
}

}  // namespace

ShmWriter::ShmWriter(std::byte* memory)
    : header_(reinterpret_cast<ShmPipeHeader*>(memory)), ring_(memory + sizeof(ShmPipeHeader)) {}

std::size_t ShmWriter::room() {
  const std::uint64_t used = written_ - header_->read.load(std::memory_order_acquire);
  broken_ = broken_ || used > kShmRingBytes;
  return broken_ ? 0 : kShmRingBytes - used;
}

std::size_t ShmWriter::write(ByteSpan data) {
  const std::size_t count = std::min(room(), data.size());
  for (std::size_t done = 0; done < count;) {
    const std::size_t at = written_ & kMask;
    const std::size_t step = std::min({count - done, kShmRingBytes - at, kStepBytes});
    std::memcpy(ring_ + at, data.data() + done, step);
    done += step;
    written_ += step;
    header_->written.store(written_, std::memory_order_release);
  }
  return count;
}

bool ShmWriter::take_reader_alarm() {
  return take(header_->reader_wants, kShmRingBytes - room());
}

bool ShmWriter::arm() {
  const std::size_t wanted = post(header_->writer_wants, kWantedMax);
  return room() < wanted && !broken_;
}

ShmReader::ShmReader(std::byte* memory)
    : header_(reinterpret_cast<ShmPipeHeader*>(memory)), ring_(memory + sizeof(ShmPipeHeader)) {}

std::size_t ShmReader::available() {
  const std::uint64_t there = header_->written.load(std::memory_order_acquire) - read_;
  broken_ = broken_ || there > kShmRingBytes;
  return broken_ ? 0 : there;
}

ByteSpan ShmReader::peek(std::size_t limit) {
  const std::size_t at = read_ & kMask;
  return {ring_ + at, std::min({available(), limit, kShmRingBytes - at, kStepBytes})};
}

void ShmReader::consume(std::size_t bytes) {
  read_ += bytes;
  header_->read.store(read_, std::memory_order_release);
}

bool ShmReader::take_writer_alarm() {
  return take(header_->writer_wants, kShmRingBytes - available());
}

bool ShmReader::arm(std::size_t wanted) {
  const std::size_t limited = post(header_->reader_wants, wanted);
  return available() < limited && !broken_;
}

}  // namespace mayfly::collectives
