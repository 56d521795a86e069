#include "base/net/accept.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/log.hpp"
#include "base/net/sockets.hpp"

namespace mayfly {

AcceptEnd accept_waiting(int listener, std::size_t bound,
                         const std::function<void(UniqueFd)>& take) {
  for (std::size_t accepts = 0; accepts < bound; ++accepts) {
    if (UniqueFd fd = accept_one(listener); fd.valid()) {
      take(std::move(fd));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      return AcceptEnd::kNoDescriptors;
    } else if (errno != ECONNABORTED && errno != EINTR) {
      return AcceptEnd::kNoneWaits;
    }
  }
  return AcceptEnd::kMoreMayWait;
}

std::string peer_name(int fd) {
  if (const Endpoint peer = peer_endpoint(fd); !peer.host.empty()) {
    return to_string(peer);
  }
  ucred process{};
  socklen_t size = sizeof process;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &process, &size) != 0 || process.pid <= 0) {
    return "somebody";
  }
  return fmt::format("process {} of user {}", process.pid, process.uid);
}

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
  return fmt::format("{}: {}: {}{}", listener_, what, why, others);
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

}  // namespace mayfly
