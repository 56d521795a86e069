#include "engine/parameter_server/ps_reach.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/net/sockets.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kPatience = milliseconds(900);  // a lost first packet is sent again after 1 s
constexpr Duration kPause = milliseconds(250);

/// Until `deadline`, or something to write to `fd` (which may be -1), or an order. True if
/// writable.
bool wait_for(int fd, const WakeUp& wake, Instant deadline) {
  pollfd polled[] = {{wake.fd(), POLLIN, 0}, {fd, POLLOUT, 0}};
  (void)::poll(polled, 2, poll_timeout_ms(deadline));
  wake.clear();
  return polled[1].revents != 0;
}

}  // namespace

void PsReach::cut_off(const std::string& address, Instant now) {
  Result<collectives::TcpAddress> parsed = collectives::parse_tcp_address(address);
  if (!parsed.ok()) {
    return;  // nobody to ask: the worker comes back at once
  }
  to_ = std::move(parsed).value();
  constexpr std::uint32_t kDoublings = 4;
  until_ =
      now + std::min(kLongestWait, kFirstWait * (std::int64_t{1} << std::min(times_, kDoublings)));
  ++times_;
}

bool PsReach::probe_once(const WakeUp& wake) {
  if (!to_) {
    return true;
  }
  const Result<UniqueFd> fd = start_connect_tcp({to_->host, to_->port});
  if (fd.ok() && fd.value().valid()) {
    if (!wait_for(fd.value().get(), wake, monotonic_now() + kPatience)) {
      return false;
    }
    if (connection_error(fd.value().get()) == 0) {
      to_.reset();
      return true;
    }
  }
  (void)wait_for(-1, wake, monotonic_now() + kPause);
  return false;
}

}  // namespace mayfly::engine
