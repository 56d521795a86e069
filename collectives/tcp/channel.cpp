#include "collectives/tcp/channel.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "collectives/plan/reduce_kernels.hpp"
#include "collectives/tcp/shm_pipe.hpp"

namespace mayfly::collectives {
namespace {

constexpr std::size_t kElementBytesMax = 8;

class SocketChannel final : public Channel {
 public:
  explicit SocketChannel(UniqueFd socket) : socket_(std::move(socket)) {}

  Moved send(ByteSpan data, bool more) override {
    return send_some(socket_.get(), data.data(), data.size(), more);
  }

  Moved receive(std::span<std::byte> into) override {
    return receive_some(socket_.get(), into.data(), into.size());
  }

  Moved receive_and_reduce(std::span<std::byte> into, Reduction reduction,
                           std::span<std::byte> scratch) override {
    std::memcpy(scratch.data(), held_.data(), held_bytes_);
    const std::size_t want = std::min(into.size(), scratch.size()) - held_bytes_;
    const Moved got = receive_some(socket_.get(), scratch.data() + held_bytes_, want);
    const std::size_t there = held_bytes_ + got.bytes;
    const std::size_t element = size_of(reduction.type);
    const std::size_t whole = there / element * element;
    reduce(into.data(), scratch.data(), whole / element, reduction.type, reduction.op);
    held_bytes_ = there - whole;
    std::memcpy(held_.data(), scratch.data() + whole, held_bytes_);
    return {.bytes = whole, .closed = got.closed};
  }

  bool watch(std::size_t wanted_bytes, bool wants_room, pollfd& watched) override {
    if (wanted_bytes > 0) {
      wake_at(wanted_bytes - std::min(wanted_bytes - 1, held_bytes_));
    }
    const int events = (wanted_bytes > 0 ? POLLIN : 0) | (wants_room ? POLLOUT : 0) | POLLRDHUP;
    watched = {.fd = socket_.get(), .events = static_cast<short>(events), .revents = 0};
    return true;
  }

  bool unreachable() const override { return is_unreachable(socket_.get()); }

  bool woken(short events) override { return (events & (POLLRDHUP | POLLHUP | POLLERR)) != 0; }

 private:
  // Over TCP the kernel wakes this thread only for `bytes` or more. Unix sockets ignore that.
  void wake_at(std::size_t bytes) {
    const auto wanted = static_cast<int>(bytes);
    if (wanted != wake_bytes_) {
      wake_bytes_ = wanted;
      ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted);
    }
  }

  const UniqueFd socket_;
  int wake_bytes_ = 1;                              // the system's default
  std::array<std::byte, kElementBytesMax> held_{};  // an incomplete element
  std::size_t held_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Channel> make_socket_channel(UniqueFd socket) {
  return std::make_unique<SocketChannel>(std::move(socket));
}

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
    return {.bytes = bytes, .closed = out_.broken() || (peer_closed_ && bytes == 0)};
  }

  Moved receive(std::span<std::byte> into) override {
    std::size_t got = 0;
    while (got < into.size()) {  // two rounds where the ring wraps around
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
    return nothing_to_read && nothing_to_write;  // a closed bell ends the sleep
  }

  bool unreachable() const override { return false; }

  bool woken(short events) override {
    std::array<std::byte, 64> rings{};
    if ((events & POLLIN) != 0) {
      while (true) {
        const Moved got = receive_some(bell_.get(), rings.data(), rings.size());
        peer_closed_ = peer_closed_ || got.closed;
        if (got.closed || got.bytes < rings.size()) {
          break;
        }
      }
    }
    peer_closed_ = peer_closed_ || (events & (POLLHUP | POLLERR | POLLRDHUP)) != 0;
    return peer_closed_;
  }

 private:
  void ring() {
    const std::byte byte{1};
    (void)send_some(bell_.get(), &byte, 1);  // if it is full, the peer is woken anyway
  }

  Moved received(std::size_t bytes) {
    if (bytes > 0 && in_.take_writer_alarm()) {
      ring();
    }
    // Bytes that the other side wrote before it ended can still be read.
    return {.bytes = bytes, .closed = in_.broken() || (peer_closed_ && bytes == 0)};
  }

  // Whole numbers that lie across the ring's end, or unaligned after an odd number of bytes.
  std::size_t reduce_gathered(std::span<std::byte> into, Reduction reduction,
                              std::span<std::byte> scratch) {
    const std::size_t element = size_of(reduction.type);
    const std::size_t limit = std::min({into.size(), scratch.size(), in_.available()});
    const std::size_t whole = limit / element * element;
    for (std::size_t at = 0; at < whole;) {
      const ByteSpan there = in_.peek(whole - at);
      if (there.empty()) {  // the other side's position has become an impossible one
        return 0;
      }
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
  bool peer_closed_ = false;
};

}  // namespace

std::unique_ptr<Channel> make_shm_channel(UniqueFd bell, SealedMemory memory, bool is_creator) {
  return std::make_unique<ShmChannel>(std::move(bell), std::move(memory), is_creator);
}

}  // namespace mayfly::collectives
