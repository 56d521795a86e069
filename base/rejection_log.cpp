#include "base/rejection_log.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/log.hpp"

namespace mayfly {
namespace {

std::string local_process(int fd) {
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.pid <= 0) {
    return "a process of this host";
  }
  return fmt::format("process {} of user {}", who.pid, who.uid);
}

}  // namespace

std::optional<std::uint64_t> LineBudget::spend(Instant now) {
  const auto passed = static_cast<std::uint64_t>((now - refilled_) / seconds(1));
  if (passed > 0) {
    lines_ = std::min(lines_ + passed, kLinesMax);
    refilled_ = now;
  }
  if (lines_ == 0) {
    ++left_out_;
    return std::nullopt;
  }
  --lines_;
  return std::exchange(left_out_, 0);
}

std::string RejectionLog::line(const std::string& what, std::string_view why,
                               std::uint64_t left_out) const {
  const std::string others =
      left_out > 0 ? fmt::format(" ({} others before, not logged)", left_out) : "";
  return fmt::format("{}: {}: {}{}", door_, what, why, others);
}

void RejectionLog::turned_away(std::string_view who, std::string_view why) {
  if (const std::optional<std::uint64_t> left_out = budget_.spend(monotonic_now())) {
    log::info(line(fmt::format("turned {} away", who), why, *left_out));
  }
}

void RejectionLog::refused(std::string_view who, std::string_view why) {
  if (const std::optional<std::uint64_t> left_out = refusals_.spend(monotonic_now())) {
    log::warning(line(fmt::format("refused {}", who), why, *left_out));
  }
}

std::string peer_name(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return "somebody";
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return fmt::format("{}:{}", text.data(), ntohs(v4.sin_port));
  }
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
    return fmt::format("[{}]:{}", text.data(), ntohs(v6.sin6_port));
  }
  return address.ss_family == AF_UNIX ? local_process(fd) : "somebody";
}

}  // namespace mayfly
