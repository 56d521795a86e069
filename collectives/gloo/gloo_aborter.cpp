#include "collectives/gloo/gloo_aborter.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <gloo/transport/unbound_buffer.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace mayfly::collectives {
namespace {

bool same_endpoint(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) {
    return false;
  }
  if (a.ss_family == AF_INET) {
    const auto& a4 = reinterpret_cast<const sockaddr_in&>(a);
    const auto& b4 = reinterpret_cast<const sockaddr_in&>(b);
    return a4.sin_port == b4.sin_port && a4.sin_addr.s_addr == b4.sin_addr.s_addr;
  }
  const auto& a6 = reinterpret_cast<const sockaddr_in6&>(a);
  const auto& b6 = reinterpret_cast<const sockaddr_in6&>(b);
  return a.ss_family == AF_INET6 && a6.sin6_port == b6.sin6_port &&
         std::memcmp(&a6.sin6_addr, &b6.sin6_addr, sizeof a6.sin6_addr) == 0;
}

// A pair's socket is bound to the address its own side has published, or connected to the one that
// the other side has.
bool belongs_to(int fd, const std::vector<sockaddr_storage>& addresses) {
  for (const auto ask : {&::getsockname, &::getpeername}) {
    sockaddr_storage at{};
    socklen_t length = sizeof at;
    const bool known = ask(fd, reinterpret_cast<sockaddr*>(&at), &length) == 0;
    if (known && std::any_of(addresses.begin(), addresses.end(),
                             [&](const sockaddr_storage& a) { return same_endpoint(a, at); })) {
      return true;
    }
  }
  return false;
}

void shut_down_all(const std::vector<UniqueFd>& sockets) {
  for (const UniqueFd& fd : sockets) {
    ::shutdown(fd.get(), SHUT_RDWR);
  }
}

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

}  // namespace

void GlooAborter::abort() noexcept {
  aborted_.store(true, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  for (gloo::transport::UnboundBuffer* buffer : buffers_) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
  if (sockets_.empty()) {  // still connecting
    shut_down_all(find_sockets());
  }
  shut_down_all(sockets_);
}

void GlooAborter::note_addresses(ByteSpan published, std::size_t pair_count) {
  const std::size_t each = published.size() / pair_count;
  if (each < sizeof(sockaddr_storage) || published.size() % pair_count != 0) {
    return;  // another version of Gloo; aborting waits still works
  }
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < pair_count; ++i) {
    sockaddr_storage address{};
    std::memcpy(&address, published.data() + i * each, sizeof address);
    if (address.ss_family == AF_INET || address.ss_family == AF_INET6) {
      addresses_.push_back(address);
    }
  }
}

void GlooAborter::capture_sockets() {
  const std::lock_guard lock(mutex_);
  sockets_ = find_sockets();
}

void GlooAborter::shut_down() noexcept {
  const std::lock_guard lock(mutex_);
  shut_down_all(sockets_);
}

std::vector<UniqueFd> GlooAborter::find_sockets() const {
  std::vector<UniqueFd> found;
  const std::unique_ptr<DIR, CloseFolder> folder(::opendir("/proc/self/fd"));
  while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    const int number = std::atoi(entry->d_name);
    if (number < 3) {
      continue;
    }
    UniqueFd fd(::fcntl(number, F_DUPFD_CLOEXEC, 3));
    if (fd.valid() && belongs_to(fd.get(), addresses_)) {
      found.push_back(std::move(fd));
    }
  }
  return found;
}

GlooAborter::Guard::Guard(GlooAborter& aborter, gloo::transport::UnboundBuffer& buffer)
    : aborter_(aborter), buffer_(buffer) {
  const std::lock_guard lock(aborter_.mutex_);
  aborter_.buffers_.push_back(&buffer_);
  if (aborter_.aborted()) {
    buffer_.abortWaitRecv();
    buffer_.abortWaitSend();
  }
}

GlooAborter::Guard::~Guard() {
  const std::lock_guard lock(aborter_.mutex_);
  std::erase(aborter_.buffers_, &buffer_);
}

}  // namespace mayfly::collectives
