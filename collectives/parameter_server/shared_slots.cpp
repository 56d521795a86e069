#include "collectives/parameter_server/shared_slots.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/check.hpp"
#include "base/try_assign.hpp"

namespace mayfly::parameter_server {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

// Marks. If a faulty process has written any other number, the slot is not used any more.
constexpr std::uint32_t kClosed = 0;  // there may be no memory behind it; new memory has this mark
constexpr std::uint32_t kFree = 1;
constexpr std::uint32_t kTaken = 2;

/// One per slot at the memory's beginning, each with a cache line of its own.
struct alignas(64) SlotMark {
  std::atomic<std::uint32_t> mark;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(SharedSlots::kAnswer * sizeof(SlotMark) <= kPageBytes);

std::uint64_t stride_of(std::uint64_t payload_bytes) {
  return (payload_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

std::uint64_t bytes_of(std::uint64_t payload_bytes) {
  return kPageBytes + SharedSlots::kAnswer * stride_of(payload_bytes);
}

std::uint64_t offset_of(std::uint64_t slot, std::uint64_t payload_bytes) {
  return kPageBytes + (slot - 1) * stride_of(payload_bytes);
}

std::atomic<std::uint32_t>& mark_of(std::byte* memory, std::uint64_t slot) {
  return reinterpret_cast<SlotMark*>(memory)[slot - 1].mark;
}

}  // namespace

Result<std::shared_ptr<SharedSlots>> SharedSlots::create(std::uint64_t payload_bytes) {
  UniqueFd fd;
  TRY_ASSIGN(SealedMemory memory, SealedMemory::create(bytes_of(payload_bytes), fd));
  if (!reserve_memory(fd.get(), 0, kPageBytes)) {
    return Error{Errc::kIo, "no shared memory"};
  }
  return std::shared_ptr<SharedSlots>(
      new SharedSlots(std::move(memory), std::move(fd), payload_bytes));
}

Result<std::shared_ptr<SharedSlots>> SharedSlots::map(int fd, std::uint64_t payload_bytes) {
  TRY_ASSIGN(SealedMemory memory, SealedMemory::map(fd, bytes_of(payload_bytes)));
  return std::shared_ptr<SharedSlots>(
      new SharedSlots(std::move(memory), UniqueFd(), payload_bytes));
}

std::byte* SharedSlots::at(std::uint64_t slot) const {
  ENSURE(slot >= 1 && slot <= kAnswer, "a slot that exists");
  return memory_.data() + offset_of(slot, payload_bytes_);
}

bool SharedSlots::open(std::uint64_t slot) {
  is_out_of_memory_ = is_out_of_memory_ ||
                      !reserve_memory(fd_.get(), offset_of(slot, payload_bytes_), payload_bytes_);
  if (!is_out_of_memory_) {
    free(slot);
  }
  return !is_out_of_memory_;
}

bool SharedSlots::write(std::uint64_t slot, ByteSpan payload) {
  ENSURE(payload.size() == payload_bytes_, "payloads of one size");
  std::atomic<std::uint32_t>& mark = mark_of(memory_.data(), slot);
  if (mark.load(std::memory_order_acquire) != kFree) {
    return false;
  }
  std::memcpy(at(slot), payload.data(), payload.size());
  mark.store(kTaken, std::memory_order_release);
  return true;
}

/// Writes into the first free slot, so that slots in the cache are used again, and few slots need
/// memory.
std::uint64_t SharedSlots::write_gradient(ByteSpan payload) {
  for (std::uint64_t slot = 1; slot <= kGradients; ++slot) {
    const bool is_closed = mark_of(memory_.data(), slot).load(std::memory_order_relaxed) == kClosed;
    if (is_closed && !open(slot)) {
      return 0;
    }
    if (write(slot, payload)) {
      return slot;
    }
  }
  return 0;
}

ByteSpan SharedSlots::payload(std::uint64_t slot) const {
  return {at(slot), payload_bytes_};
}

void SharedSlots::free(std::uint64_t slot) {
  mark_of(memory_.data(), slot).store(kFree, std::memory_order_release);
}

Result<void> copy_payload(ByteSpan payload, const Header& header, const PayloadTarget& target) {
  ENSURE(payload.size() == target[0].size() + target[1].size(), "room for the payload");
  for (std::size_t done = 0; const std::span<std::byte> run : target) {
    std::ranges::copy(payload.subspan(done, run.size()), run.begin());
    done += run.size();
  }
  const bool is_whole =
      header.payload_check == 0 || payload_hash(target[0], target[1]) == header.payload_check;
  return is_whole ? Result<void>()
                  : Result<void>(Error{Errc::kCorrupt, "a payload was damaged on its way"});
}

}  // namespace mayfly::parameter_server
