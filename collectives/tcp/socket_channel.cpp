#include "collectives/tcp/channel.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "collectives/plan/reduce_kernels.hpp"

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
  // Over TCP the kernel does not wake us for less. It is a wish: Unix sockets do not know it.
  void wake_at(std::size_t bytes) {
    const auto wanted = static_cast<int>(bytes);
    if (wanted != wake_bytes_) {
      wake_bytes_ = wanted;
      ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted);
    }
  }

  const UniqueFd socket_;
  int wake_bytes_ = 1;                              // the system's default
  std::array<std::byte, kElementBytesMax> held_{};  // the beginning of an element
  std::size_t held_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Channel> make_socket_channel(UniqueFd socket) {
  return std::make_unique<SocketChannel>(std::move(socket));
}

}  // namespace mayfly::collectives
