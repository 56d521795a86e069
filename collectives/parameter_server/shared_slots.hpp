#pragma once

// Memory that a worker and a shard of one host share, so that a payload is written once by one side
// and read in place by the other. Only its header, which names the slot, is sent over the socket.
// The worker creates the memory, and sends its descriptor with the greeting.
//
// A slot belongs to one side at a time. It is free until its writer has put a payload into it, and
// taken until its reader frees it. A writer that finds no free slot sends the payload over the
// socket, so neither side waits for a slot. A header is sent when its payload is complete, so a
// process that dies while it writes has sent nothing. The other side is not trusted: the size of
// the memory is sealed, and each side computes positions itself. If a side changes payloads after
// it has passed them on, or the marks of slots, it damages only its own messages. Each side uses
// its own object, on one thread.

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
  /// Slots 1 to this one are for gradients: several, because a shard may keep those of a round. The
  /// system allocates the memory of a slot when it is used for the first time.
  static constexpr std::uint64_t kGradients = 4;
  /// The slot for a shard's parameters.
  static constexpr std::uint64_t kAnswer = kGradients + 1;

  /// Worker: creates the memory, for payloads of `payload_bytes` > 0. Shared, because on a shard
  /// both the connection and each gradient that is kept longer own it. kIo if there is no memory.
  [[nodiscard]] static Result<std::shared_ptr<SharedSlots>> create(std::uint64_t payload_bytes);
  /// Shard: maps the memory; `fd` may be closed afterwards. kCorrupt if it is not such memory.
  [[nodiscard]] static Result<std::shared_ptr<SharedSlots>> map(int fd,
                                                                std::uint64_t payload_bytes);

  /// The descriptor to send to the shard; -1 on a shard.
  [[nodiscard]] int fd() const { return fd_.get(); }

  /// Worker: the shard may write into the answers' slot from now on, if there is enough memory.
  void open_answers() { (void)open(kAnswer); }
  /// Worker: writes a gradient into a slot and returns its number; 0 if none is free.
  [[nodiscard]] std::uint64_t write_gradient(ByteSpan payload);
  /// Shard: writes parameters into the answers' slot and returns its number; 0 if it is not free.
  [[nodiscard]] std::uint64_t write_answer(ByteSpan payload) {
    return write(kAnswer, payload) ? kAnswer : 0;
  }

  /// The payload in this slot, which must be 1 to kAnswer.
  [[nodiscard]] ByteSpan payload(std::uint64_t slot) const;
  /// The reader does not use the slot's payload any more.
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
  bool is_out_of_memory_ = false;  // in a worker: no further slots are opened
};

/// A slot whose payload is being read; it is freed when this object is destroyed. Movable.
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
  std::shared_ptr<SharedSlots> slots_;  // shared with the connection, which may be destroyed first
  std::uint64_t slot_ = 0;
};

/// Copies a payload to its target, which has the same size. kCorrupt if its hash is not that of the
/// header (0 = not computed).
[[nodiscard]] Result<void> copy_payload(ByteSpan payload, const Header& header,
                                        const PayloadTarget& target);

}  // namespace mayfly::parameter_server
