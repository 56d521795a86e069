#include "engine/membership/peer_reach.hpp"

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/log.hpp"
#include "base/net/sockets.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kPatience = milliseconds(900);  // a lost first packet is sent again after 1 s
constexpr Duration kPause = seconds(1);

/// Of `peers` those whose host leaves a connection unanswered.
std::vector<collectives::TcpAddress> silent_among(std::vector<collectives::TcpAddress> peers) {
  std::vector<UniqueFd> asked;
  std::vector<pollfd> polled;
  for (const collectives::TcpAddress& peer : peers) {
    Result<UniqueFd> fd = start_connect_tcp({peer.host, peer.port});
    asked.push_back(fd.ok() ? std::move(fd).value() : UniqueFd());  // invalid: answered at once
    polled.push_back({asked.back().get(), POLLOUT, 0});
  }
  const Instant deadline = monotonic_now() + kPatience;
  const auto waits = [](const pollfd& one) { return one.fd >= 0; };
  std::vector<collectives::TcpAddress> silent;
  while (std::any_of(polled.begin(), polled.end(), waits) && monotonic_now() < deadline) {
    (void)::poll(polled.data(), polled.size(), poll_timeout_ms(deadline));
    for (std::size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].fd < 0 || polled[i].revents == 0) {
        continue;
      }
      const int error = connection_error(polled[i].fd);
      if (error != 0 && error != ECONNREFUSED) {
        silent.push_back(std::move(peers[i]));
      }
      polled[i].fd = -1;
    }
  }
  for (std::size_t i = 0; i < polled.size(); ++i) {
    if (waits(polled[i])) {
      silent.push_back(std::move(peers[i]));
    }
  }
  return silent;
}

}  // namespace

void PeerReach::evicted(const std::vector<std::string>& peers, Instant now) {
  silent_.clear();
  for (const std::string& peer : peers) {
    if (Result<collectives::TcpAddress> parsed = collectives::parse_tcp_address(peer);
        parsed.ok()) {
      silent_.push_back(std::move(parsed).value());
    }
  }
  constexpr int kDoublings = 4;
  until_ =
      now + std::min(kLongestWait, kFirstWait * (std::int64_t{1} << std::min(times_, kDoublings)));
  times_ = silent_.empty() ? 0 : times_ + 1;
}

void PeerReach::wait(const std::function<bool(Duration)>& pause) {
  bool has_said_so = false;
  while (!silent_.empty() && monotonic_now() < until_) {
    silent_ = silent_among(std::move(silent_));
    if (silent_.empty()) {
      break;
    }
    if (!has_said_so) {
      log::warning(fmt::format("{} does not answer; ready as soon as it does, or in {} s",
                               silent_.front().host,
                               (until_ - monotonic_now()).count() / 1'000'000'000));
      has_said_so = true;
    }
    if (pause(kPause)) {
      break;
    }
  }
  silent_.clear();
}

}  // namespace mayfly::engine
