#include "collectives/tcp/socket_channel.hpp"

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

  bool watch(bool wants_data, bool wants_room, pollfd& watched) override {
    const int events = (wants_data ? POLLIN : 0) | (wants_room ? POLLOUT : 0) | POLLRDHUP;
    watched = {.fd = socket_.get(), .events = static_cast<short>(events), .revents = 0};
    return true;
  }

  bool woken(short events) override { return (events & (POLLRDHUP | POLLHUP | POLLERR)) != 0; }

 private:
  const UniqueFd socket_;
  std::array<std::byte, kElementBytesMax> held_{};  // the beginning of an element
  std::size_t held_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Channel> make_socket_channel(UniqueFd socket) {
  return std::make_unique<SocketChannel>(std::move(socket));
}

}  // namespace mayfly::collectives
