#include "collectives/tcp/shm_pipe.hpp"

#include <algorithm>
#include <cstring>

namespace mayfly::collectives {
namespace {

constexpr std::size_t kMask = kShmRingBytes - 1;
static_assert((kShmRingBytes & kMask) == 0);

// Sleeping needs a total order: "my flag is up" before "is there really nothing", and on the other
// side "here is something" before "is a flag up". One of the two then sees the other.
bool take(std::atomic<std::uint32_t>& alarm) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return alarm.load(std::memory_order_relaxed) != 0 &&
         alarm.exchange(0, std::memory_order_acq_rel) != 0;
}

void raise(std::atomic<std::uint32_t>& alarm) {
  alarm.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
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
  const std::size_t at = written_ & kMask;
  const std::size_t first = std::min(count, kShmRingBytes - at);
  if (count > 0) {
    std::memcpy(ring_ + at, data.data(), first);
    std::memcpy(ring_, data.data() + first, count - first);
    written_ += count;
    header_->written.store(written_, std::memory_order_release);
  }
  return count;
}

bool ShmWriter::take_reader_alarm() {
  return take(header_->reader_sleeps);
}

bool ShmWriter::arm() {
  raise(header_->writer_sleeps);
  return room() == 0 && !broken_;
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
  return {ring_ + at, std::min({available(), limit, kShmRingBytes - at})};
}

void ShmReader::consume(std::size_t bytes) {
  read_ += bytes;
  header_->read.store(read_, std::memory_order_release);
}

bool ShmReader::take_writer_alarm() {
  return take(header_->writer_sleeps);
}

bool ShmReader::arm(std::size_t wanted) {
  raise(header_->reader_sleeps);
  return available() < wanted && !broken_;
}

}  // namespace mayfly::collectives
