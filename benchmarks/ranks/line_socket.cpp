#include "benchmarks/ranks/line_socket.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace mayfly::bench {
namespace {

constexpr std::size_t kChunkBytes = 64 * 1024;

/// Rounded up, so that poll() never returns just before the deadline.
int milliseconds_until(std::optional<Instant> deadline) {
  if (!deadline.has_value()) {
    return -1;
  }
  const std::int64_t ns = (*deadline - monotonic_now()).count();
  return static_cast<int>(std::clamp<std::int64_t>((ns + 999'999) / 1'000'000, 0, 1 << 30));
}

}  // namespace

std::optional<std::string> LineBuffer::next() {
  const std::size_t end = text_.find('\n', searched_);
  if (end == std::string::npos) {
    searched_ = text_.size();
    return std::nullopt;
  }
  std::string line = text_.substr(0, end);
  text_.erase(0, end + 1);
  searched_ = 0;
  return line;
}

Result<LineSocket> LineSocket::connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Error{Errc::kInvalidInput, "the path of the control socket is too long: " + path};
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() ||
      ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return Error{Errc::kIo, "cannot connect to " + path + ": " + std::strerror(errno)};
  }
  return LineSocket(std::move(fd));
}

Result<void> LineSocket::send(const std::string& line) {
  const std::string text = line + "\n";
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t n = ::send(fd_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return Error{Errc::kPeerLost,
                   std::string("the control connection is gone: ") + std::strerror(errno)};
    }
    sent += static_cast<std::size_t>(n);
  }
  return {};
}

Result<std::string> LineSocket::receive(std::optional<Instant> deadline) {
  std::array<char, kChunkBytes> chunk;  // NOLINT: filled by recv
  while (true) {
    if (std::optional<std::string> line = buffer_.next()) {
      return *std::move(line);
    }
    pollfd ready{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    const int polled = ::poll(&ready, 1, milliseconds_until(deadline));
    if (polled == 0) {
      return Error{Errc::kDeadline, "no answer on the control connection"};
    }
    const ssize_t got = polled < 0 ? -1 : ::recv(fd_.get(), chunk.data(), chunk.size(), 0);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return Error{Errc::kPeerLost, "the control connection is gone"};
    }
    buffer_.append({chunk.data(), static_cast<std::size_t>(got)});
  }
}

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::size_t begin = 0;
  while (begin < line.size()) {
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

std::string rest_of_line(const std::string& line, std::size_t index) {
  std::size_t begin = 0;
  for (; index > 0 && begin < line.size(); --index) {
    begin = std::min(line.find(' ', begin), line.size() - 1) + 1;
  }
  return line.substr(begin);
}

}  // namespace mayfly::bench
