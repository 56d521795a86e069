#pragma once

// Memory that a worker and a shard of one host share, so that a payload is written once by one side
// and read where it lies by the other. Only its header travels over the socket; it names the slot.
// The worker makes the memory, and its descriptor goes along with the greeting.
//
// A slot belongs to one side at a time. It is free until its writer has put a payload into it, and
// taken until its reader has done with that. A writer that finds none free sends the payload over
// the socket: neither side waits for a slot. A header comes after its payload is complete, so a
// process that dies in the middle of writing has said nothing. The other side is not trusted: the
// memory's size is sealed, positions are computed here, and a side that changes what it has given
// away, or marks, spoils only what it says or hears itself. Each side uses its own object, on one
// thread.

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/sealed_memory.hpp"
#include "base/unique_fd.hpp"
#include "collectives/parameter_server/message.hpp"
#include "collectives/parameter_server/message_stream.hpp"

namespace mayfly::parameter_server {

class SharedSlots {
 public:
  /// Slots 1 to this one are for gradients: several, since a shard may keep those of a round. The
  /// system gives memory to a slot when it is used for the first time.
  static constexpr std::uint64_t kGradients = 4;
  /// The slot for a shard's parameters.
  static constexpr std::uint64_t kAnswer = kGradients + 1;

  /// By the worker; payloads have so many bytes, more than none. Two own it on a shard: its
  /// connection, and each gradient that is kept longer. kIo if the system gives no memory.
  [[nodiscard]] static Result<std::shared_ptr<SharedSlots>> create(std::uint64_t payload_bytes);
  /// By the shard; `fd` may be closed then. kCorrupt if it is not such memory.
  [[nodiscard]] static Result<std::shared_ptr<SharedSlots>> map(int fd,
                                                                std::uint64_t payload_bytes);

  /// To be handed over; -1 on a shard.
  [[nodiscard]] int fd() const { return fd_.get(); }

  /// By the worker: the shard may write into the answers' slot from now on, if there is memory.
  void open_answers() { (void)open(kAnswer); }
  /// By the worker: puts a gradient into a slot and says which; 0 if none is free.
  [[nodiscard]] std::uint64_t write_gradient(ByteSpan payload);
  /// By the shard: puts parameters into the answers' slot and says which; 0 if it is not free.
  [[nodiscard]] std::uint64_t write_answer(ByteSpan payload) {
    return write(kAnswer, payload) ? kAnswer : 0;
  }

  /// `slot` is one of ours.
  [[nodiscard]] ByteSpan payload(std::uint64_t slot) const;
  /// By the reader, which does not look at its payload any more.
  void free(std::uint64_t slot);

 private:
  SharedSlots(SealedMemory memory, UniqueFd fd, std::uint64_t payload_bytes)
      : memory_(std::move(memory)), fd_(std::move(fd)), payload_bytes_(payload_bytes) {}

  [[nodiscard]] bool open(std::uint64_t slot);
  [[nodiscard]] bool write(std::uint64_t slot, ByteSpan payload);
  [[nodiscard]] std::byte* at(std::uint64_t slot) const;

  const SealedMemory memory_;
  const UniqueFd fd_;
  const std::uint64_t payload_bytes_;
  bool is_out_of_memory_ = false;  // of the worker: no further slots
};

/// A slot whose payload is being read; free again when this is gone. Movable.
class TakenSlot {
 public:
  TakenSlot() = default;
  TakenSlot(std::shared_ptr<SharedSlots> slots, std::uint64_t slot)
      : slots_(std::move(slots)), slot_(slot) {}
  ~TakenSlot() {
    if (slots_ != nullptr) {
      slots_->free(slot_);
    }
  }
  TakenSlot(TakenSlot&&) noexcept = default;
  TakenSlot& operator=(TakenSlot&& other) noexcept {
    std::swap(slots_, other.slots_);
    std::swap(slot_, other.slot_);
    return *this;
  }

  /// Empty if there is none.
  [[nodiscard]] ByteSpan payload() const {
    return slots_ != nullptr ? slots_->payload(slot_) : ByteSpan{};
  }

 private:
  std::shared_ptr<SharedSlots> slots_;  // also its connection's, which may be gone before
  std::uint64_t slot_ = 0;
};

/// Copies a payload to where it belongs, of the same size. kCorrupt if its hash is not the header's
/// (0 = not made).
[[nodiscard]] Result<void> copy_payload(ByteSpan payload, const Header& header,
                                        const PayloadTarget& target);

}  // namespace mayfly::parameter_server
