#include "engine/training/peer_reach.hpp"

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

constexpr Duration kAnswerPatience = milliseconds(900);  // a lost packet is sent again after 1 s
constexpr Duration kProbePause = milliseconds(250);
constexpr int kDoublings = 4;

}  // namespace

void PeerReach::cut_off(const std::vector<std::string>& addresses, Instant now) {
  silent_.clear();
  for (const std::string& address : addresses) {
    if (Result<collectives::TcpAddress> parsed = collectives::parse_tcp_address(address);
        parsed.ok()) {
      silent_.push_back(std::move(parsed).value());
    }
  }
  until_ = now + rule_.first_wait * (std::int64_t{1} << std::min(times_, kDoublings));
  times_ = silent_.empty() ? 0 : times_ + 1;
}

void PeerReach::reached_all() {
  silent_.clear();
  times_ = 0;
}

void PeerReach::wait(const WakeUp& wake, const std::function<bool()>& is_over) {
  bool is_logged = false;
  while (is_away(monotonic_now()) && !is_over()) {
    probe(wake);
    if (silent_.empty()) {
      return;
    }
    if (!std::exchange(is_logged, true)) {
      log::warning(fmt::format("{} does not answer; ready as soon as it does, or in {} s",
                               silent_.front().host, (until_ - monotonic_now()) / seconds(1)));
    }
    pollfd polled{wake.fd(), POLLIN, 0};
    (void)::poll(&polled, 1, static_cast<int>(kProbePause / milliseconds(1)));
    wake.clear();
  }
}

/// Connects once to each silent peer and forgets those that answer. Ends early if `wake` is
/// notified, which it does not clear.
void PeerReach::probe(const WakeUp& wake) {
  const Instant deadline = monotonic_now() + kAnswerPatience;
  std::vector<UniqueFd> connections;
  std::vector<pollfd> polled;
  std::vector<bool> has_answered;
  for (const collectives::TcpAddress& peer : silent_) {
    Result<UniqueFd> fd = start_connect_tcp({peer.host, peer.port});
    const bool is_under_way = fd.ok() && fd.value().valid();
    connections.push_back(is_under_way ? std::move(fd).value() : UniqueFd());
    polled.push_back({connections.back().get(), POLLOUT, 0});
    const bool is_refused = !fd.ok() && fd.error().code == Errc::kPeerLost;
    has_answered.push_back(is_refused && rule_.takes_refusals);
  }
  const auto is_under_way = [](const pollfd& one) { return one.fd >= 0; };
  bool is_woken = false;
  while (!is_woken && monotonic_now() < deadline && std::ranges::any_of(polled, is_under_way)) {
    polled.push_back({wake.fd(), POLLIN, 0});
    (void)::poll(polled.data(), polled.size(), poll_timeout_ms(deadline));
    is_woken = polled.back().revents != 0;
    polled.pop_back();
    for (std::size_t i = 0; i < polled.size(); ++i) {
      if (is_under_way(polled[i]) && polled[i].revents != 0) {
        const int error = connection_error(polled[i].fd);
        has_answered[i] = error == 0 || (error == ECONNREFUSED && rule_.takes_refusals);
        polled[i].fd = -1;
      }
    }
  }
  std::size_t place = 0;
  std::erase_if(silent_, [&](const auto& /*peer*/) { return has_answered[place++]; });
}

}  // namespace mayfly::engine
