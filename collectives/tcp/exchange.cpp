#include "collectives/tcp/exchange.hpp"

#include <fmt/format.h>

namespace mayfly::collectives {

Error lost_peer(const TcpPeer& peer) {
  return {Errc::kPeerLost, fmt::format("the connection to member {} broke", value(peer.member)),
          peer.member};
}

Error unreachable_peer(const TcpPeer& peer) {
  return {Errc::kUnreachable,
          fmt::format("the host of member {} does not answer", value(peer.member)), peer.member};
}

Result<void> check_header(const RingHeader& ours, const RingHeader& theirs, MemberId from) {
  if (ours == theirs) {
    return {};
  }
  return Error{Errc::kCorrupt,
               fmt::format("member {} runs operation {} of another kind or size than our "
                           "operation {}",
                           value(from), theirs.sequence, ours.sequence),
               from};
}

Result<bool> HeaderExchange::send(bool more) {
  const ByteSpan rest = std::as_bytes(std::span(&ours_, 1)).subspan(sent_bytes_);
  const Moved sent = peer_->channel->send(rest, more);
  if (sent.closed) {
    return lost_peer(*peer_);
  }
  sent_bytes_ += sent.bytes;
  return sent.bytes > 0;
}

Result<bool> HeaderExchange::receive() {
  const auto rest = std::as_writable_bytes(std::span(&theirs_, 1)).subspan(received_bytes_);
  const Moved got = peer_->channel->receive(rest);
  if (got.closed) {
    return lost_peer(*peer_);
  }
  received_bytes_ += got.bytes;
  if (received()) {
    TRY(check_header(ours_, theirs_, peer_->member));
  }
  return got.bytes > 0;
}

}  // namespace mayfly::collectives
