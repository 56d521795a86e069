#include "collectives/tcp/channel.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "collectives/plan/reduce_kernels.hpp"
#include "collectives/tcp/shm_pipe.hpp"

namespace mayfly::collectives {
namespace {

class ShmChannel final : public Channel {
 public:
  ShmChannel(UniqueFd bell, SealedMemory memory, bool is_creator)
      : bell_(std::move(bell)),
        memory_(std::move(memory)),
        out_(memory_.data() + (is_creator ? 0 : kShmSecondPipe)),
        in_(memory_.data() + (is_creator ? kShmSecondPipe : 0)) {}

  Moved send(ByteSpan data, bool /*more*/) override {
    const std::size_t bytes = out_.write(data);
    if (bytes > 0 && out_.take_reader_alarm()) {
      ring();
    }
    return {.bytes = bytes, .closed = out_.broken() || (gone_ && bytes == 0)};
  }

  Moved receive(std::span<std::byte> into) override {
    std::size_t got = 0;
    while (got < into.size()) {  // twice where the ring wraps around
      const ByteSpan there = in_.peek(into.size() - got);
      if (there.empty()) {
        break;
      }
      std::memcpy(into.data() + got, there.data(), there.size());
      in_.consume(there.size());
      got += there.size();
    }
    return received(got);
  }

  Moved receive_and_reduce(std::span<std::byte> into, Reduction reduction,
                           std::span<std::byte> scratch) override {
    const std::size_t element = size_of(reduction.type);
    std::size_t got = 0;
    while (got < into.size()) {
      const ByteSpan there = in_.peek(into.size() - got);
      const bool aligned = reinterpret_cast<std::uintptr_t>(there.data()) % element == 0;
      if (there.size() < element || !aligned) {
        const std::size_t gathered = reduce_gathered(into.subspan(got), reduction, scratch);
        if (gathered == 0) {
          break;
        }
        got += gathered;
        continue;
      }
      const std::size_t whole = there.size() / element * element;
      reduce(into.data() + got, there.data(), whole / element, reduction.type, reduction.op);
      in_.consume(whole);
      got += whole;
    }
    return received(got);
  }

  bool watch(std::size_t wanted_bytes, bool wants_room, pollfd& watched) override {
    watched = {.fd = bell_.get(), .events = POLLIN | POLLRDHUP, .revents = 0};
    const bool nothing_to_read = wanted_bytes == 0 || in_.arm(wanted_bytes);
    const bool nothing_to_write = !wants_room || out_.arm();
    return nothing_to_read && nothing_to_write && !gone_;
  }

  bool unreachable() const override { return false; }

  bool woken(short events) override {
    std::array<std::byte, 64> rings{};
    if ((events & POLLIN) != 0) {
      while (true) {
        const Moved heard = receive_some(bell_.get(), rings.data(), rings.size());
        gone_ = gone_ || heard.closed;
        if (heard.closed || heard.bytes < rings.size()) {
          break;
        }
      }
    }
    gone_ = gone_ || (events & (POLLHUP | POLLERR | POLLRDHUP)) != 0;
    return gone_;
  }

 private:
  void ring() {
    const std::byte byte{1};
    (void)send_some(bell_.get(), &byte, 1);  // a full bell has rung; a broken one tells by itself
  }

  Moved received(std::size_t bytes) {
    if (bytes > 0 && in_.take_writer_alarm()) {
      ring();
    }
    // What was written before the other side went is still there.
    return {.bytes = bytes, .closed = in_.broken() || (gone_ && bytes == 0)};
  }

  // Whole numbers that lie across the ring's end, or unaligned after an odd number of bytes.
  std::size_t reduce_gathered(std::span<std::byte> into, Reduction reduction,
                              std::span<std::byte> scratch) {
    const std::size_t element = size_of(reduction.type);
    const std::size_t limit = std::min({into.size(), scratch.size(), in_.available()});
    const std::size_t whole = limit / element * element;
    for (std::size_t at = 0; at < whole;) {
      const ByteSpan there = in_.peek(whole - at);
      std::memcpy(scratch.data() + at, there.data(), there.size());
      in_.consume(there.size());
      at += there.size();
    }
    reduce(into.data(), scratch.data(), whole / element, reduction.type, reduction.op);
    return whole;
  }

  const UniqueFd bell_;
  const SealedMemory memory_;
  ShmWriter out_;
  ShmReader in_;
  bool gone_ = false;
};

}  // namespace

std::unique_ptr<Channel> make_shm_channel(UniqueFd bell, SealedMemory memory, bool is_creator) {
  return std::make_unique<ShmChannel>(std::move(bell), std::move(memory), is_creator);
}

}  // namespace mayfly::collectives
