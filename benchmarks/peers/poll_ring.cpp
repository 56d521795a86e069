#include "benchmarks/peers/poll_ring.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/try_assign.hpp"

namespace mayfly::peers {
namespace {

// Pieces of 64 KiB to 1 MiB were measured, and socket buffers of 256 KiB, 1 and 4 MiB in place of
// the system's own, which it sizes by itself: none is better than this at 2 MiB, 25 MiB and 100
// MiB.
constexpr std::size_t kPieceBytes = 256 * 1024;
constexpr int kTimeoutMs = 60'000;

Error last_error(const char* what) {
  return {Errc::kPeerLost, std::string(what) + ": " + std::strerror(errno)};
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

void make_ready(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/// The elements of the vector in segment `index` (modulo the ranks).
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
};
Range segment(std::size_t count, std::uint32_t ranks, std::uint32_t index) {
  const std::size_t i = index % ranks;
  return {count * i / ranks, count * (i + 1) / ranks};
}

/// One direction of the ring: 2 (n - 1) segments, one after the other.
class Stream {
 public:
  Stream(std::size_t count, std::uint32_t ranks, std::uint32_t first)
      : count_(count), ranks_(ranks), index_(first), steps_(2 * (ranks - 1)) {
    range_ = segment(count_, ranks_, index_);
    skip_empty();
  }
  [[nodiscard]] bool done() const { return step_ == steps_; }
  [[nodiscard]] bool is_sum() const { return step_ < ranks_ - 1; }
  [[nodiscard]] std::size_t offset() const { return range_.begin; }
  [[nodiscard]] std::size_t left() const { return range_.end - range_.begin; }
  /// Elements passed so far in all segments.
  [[nodiscard]] std::size_t passed() const { return passed_; }
  void advance(std::size_t elements) {
    range_.begin += elements;
    passed_ += elements;
    skip_empty();
  }

 private:
  void skip_empty() {
    while (!done() && left() == 0) {
      ++step_;
      index_ = (index_ + ranks_ - 1) % ranks_;
      range_ = segment(count_, ranks_, index_);
    }
  }

  std::size_t count_;
  std::uint32_t ranks_;
  std::uint32_t index_;
  std::uint32_t steps_;
  std::uint32_t step_ = 0;
  std::size_t passed_ = 0;
  Range range_;
};

/// One all-reduce in progress. Data is passed on as soon as it is added, not only when its segment
/// is complete: after its own segment a rank has never sent more than it has received.
template <typename T>
class Operation {
 public:
  Operation(T* data, std::size_t count, std::uint32_t rank, std::uint32_t ranks, int next,
            int previous, std::vector<std::byte>& piece)
      : data_(data),
        out_(count, ranks, rank),
        in_(count, ranks, rank + ranks - 1),
        own_(segment_size(count, ranks, rank)),
        next_(next),
        previous_(previous),
        piece_(piece) {}

  Result<void> run() {
    while (!out_.done() || !in_.done()) {
      Result<bool> sent = send_some();
      TRY_ASSIGN(bool received, sent.ok() ? receive_some() : sent);
      if (!sent.value() && !received) {
        TRY(wait());
      }
    }
    return {};
  }

 private:
  static std::size_t segment_size(std::size_t count, std::uint32_t ranks, std::uint32_t rank) {
    const Range own = segment(count, ranks, rank);
    return own.end - own.begin;
  }

  /// Bytes of the segment in progress that may be sent now, including a split element.
  [[nodiscard]] std::size_t sendable() const {
    if (out_.done()) {
      return 0;
    }
    const std::size_t allowed = own_ + in_.passed() - out_.passed();
    return std::min(out_.left(), allowed) * sizeof(T) - out_split_;
  }

  Result<bool> send_some() {
    const std::size_t bytes = std::min(sendable(), kPieceBytes);
    if (bytes == 0) {
      return false;
    }
    const auto* from = reinterpret_cast<const std::byte*>(data_ + out_.offset()) + out_split_;
    const ssize_t n = ::send(next_, from, bytes, MSG_NOSIGNAL);
    if (n < 0) {
      return errno == EAGAIN || errno == EINTR ? Result<bool>(false) : last_error("send");
    }
    out_split_ += static_cast<std::size_t>(n);
    out_.advance(out_split_ / sizeof(T));
    out_split_ %= sizeof(T);
    return true;
  }

  Result<bool> receive_some() {
    if (in_.done()) {
      return false;
    }
    const std::size_t wanted = std::min(in_.left() * sizeof(T), kPieceBytes) - in_split_;
    std::byte* to =
        in_.is_sum() ? piece_.data() : reinterpret_cast<std::byte*>(data_ + in_.offset());
    const ssize_t n = ::recv(previous_, to + in_split_, wanted, 0);
    if (n == 0) {
      return Error{Errc::kPeerLost, "the previous rank is gone"};
    }
    if (n < 0) {
      return errno == EAGAIN || errno == EINTR ? Result<bool>(false) : last_error("recv");
    }
    take(in_split_ + static_cast<std::size_t>(n));
    return true;
  }

  /// `bytes` have arrived, at the start of the piece or in their place.
  void take(std::size_t bytes) {
    const std::size_t whole = bytes / sizeof(T);
    in_split_ = bytes % sizeof(T);
    if (in_.is_sum()) {
      const T* added = reinterpret_cast<const T*>(piece_.data());
      T* sum = data_ + in_.offset();
      for (std::size_t i = 0; i < whole; ++i) {
        sum[i] += added[i];
      }
      std::memmove(piece_.data(), piece_.data() + whole * sizeof(T), in_split_);
    }
    in_.advance(whole);
  }

  Result<void> wait() {
    std::array<pollfd, 2> ready{
        pollfd{
            .fd = previous_, .events = static_cast<short>(in_.done() ? 0 : POLLIN), .revents = 0},
        pollfd{.fd = sendable() > 0 ? next_ : -1, .events = POLLOUT, .revents = 0}};
    const int n = ::poll(ready.data(), ready.size(), kTimeoutMs);
    if (n == 0) {
      return Error{Errc::kDeadline, "the ring stands still"};
    }
    return n < 0 && errno != EINTR ? Result<void>(last_error("poll")) : Result<void>();
  }

  T* data_;
  Stream out_;
  Stream in_;
  std::size_t own_;  // elements of the first outgoing segment
  int next_;
  int previous_;
  std::vector<std::byte>& piece_;
  std::size_t out_split_ = 0;  // bytes sent of an incomplete element
  std::size_t in_split_ = 0;   // bytes received of an incomplete element
};

}  // namespace

Result<std::unique_ptr<PollRing>> PollRing::listen() {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  if (!listener.valid() ||
      ::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0 ||
      ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return last_error("listen");
  }
  std::unique_ptr<PollRing> ring(new PollRing(std::move(listener), ntohs(address.sin_port)));
  ring->piece_.resize(kPieceBytes + sizeof(double));
  return ring;
}

Result<void> PollRing::connect(std::uint32_t rank, const std::vector<std::string>& addresses) {
  rank_ = rank;
  size_ = static_cast<std::uint32_t>(addresses.size());
  if (size_ == 1) {
    return {};
  }
  const auto port = static_cast<std::uint16_t>(std::atoi(addresses[(rank + 1) % size_].c_str()));
  next_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback(port);
  if (::connect(next_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return last_error("connect");
  }
  pollfd ready{.fd = listener_.get(), .events = POLLIN, .revents = 0};
  if (::poll(&ready, 1, kTimeoutMs) != 1) {
    return Error{Errc::kDeadline, "the previous rank does not connect"};
  }
  previous_ = UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!previous_.valid()) {
    return last_error("accept");
  }
  make_ready(next_.get());
  make_ready(previous_.get());
  return {};
}

void PollRing::disconnect() {
  next_ = {};
  previous_ = {};
}

template <typename T>
Result<void> PollRing::sum(T* data, std::size_t count) {
  if (size_ == 1) {
    return {};
  }
  Operation<T> operation(data, count, rank_, size_, next_.get(), previous_.get(), piece_);
  return operation.run();
}

template Result<void> PollRing::sum<float>(float*, std::size_t);
template Result<void> PollRing::sum<std::int32_t>(std::int32_t*, std::size_t);

}  // namespace mayfly::peers
