#pragma once

// One encrypted connection: transfers bytes between the network and its owner's end of a pair of
// local sockets. Private to elastic/net.

#include <openssl/ssl.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "elastic/net/tls_link.hpp"

namespace mayfly::elastic {

enum class TlsSide { kClient, kServer };

/// One connection. The thread "tls" runs it; other threads read its status.
class TlsRelay final : public TlsLink {
 public:
  /// `plain`: one end of a pair of local sockets, whose other end is the owner's.
  TlsRelay(UniqueFd network, UniqueFd plain, TlsSide side, ByteSpan token, Bytes farewell);

  [[nodiscard]] Result<void> wait_until_open(Instant deadline) const override;
  [[nodiscard]] std::string failure() const override;
  [[nodiscard]] bool has_acknowledged(std::uint64_t bytes) const override;
  void abandon() const override { is_abandoned_ = true; }

  // The thread "tls":
  /// Transfers as many bytes as possible; `ready` are the events that poll() has reported for both
  /// sockets. False: the connection is over.
  [[nodiscard]] bool advance(Instant now, const std::array<short, 2>& ready);
  /// The events to poll both sockets for; a descriptor of -1 if there is none.
  [[nodiscard]] std::array<pollfd, 2> polled() const;
  /// advance() must be called at this instant even if no event has occurred.
  [[nodiscard]] Instant look_again_at() const;
  /// Its owner has finished writing, and not everything is sent.
  [[nodiscard]] bool owes() const;
  /// Closes both sockets; no other function may be called after this.
  void end();

 private:
  enum class State { kHandshake, kOpen };

  struct Block {
    std::vector<char> bytes = std::vector<char>(std::size_t{64} << 10);
    std::size_t first = 0;
    std::size_t last = 0;
    [[nodiscard]] bool is_empty() const { return first == last; }
    [[nodiscard]] std::size_t size() const { return last - first; }
    [[nodiscard]] const char* data() const { return bytes.data() + first; }
  };

  bool shake_hands(Instant now);
  bool waits_for_handshake(Instant now);
  void judge_silence(Instant now);
  bool take_from_owner();
  bool send_to_peer();
  bool send_end(Instant now);
  bool take_from_peer();
  bool give_to_owner();
  [[nodiscard]] bool is_over(Instant now) const;
  /// True if the call is to be repeated when the network is ready; otherwise it has failed.
  bool waits(int result);
  void fail(Error error);

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  UniqueFd network_;  // closed under mutex_
  UniqueFd plain_;
  const bool is_server_;
  Bytes key_;
  Bytes farewell_;
  std::unique_ptr<SSL, decltype(&::SSL_free)> ssl_{nullptr, &::SSL_free};
  const Instant began_ = monotonic_now();
  State state_ = State::kHandshake;
  short network_events_ = POLLIN;
  short plain_events_ = POLLIN;
  bool owner_may_have_more_ = true;
  bool peer_may_have_more_ = true;
  Block to_peer_;
  Block from_peer_;
  bool owner_is_done_ = false;     // the owner writes no more
  bool owner_has_closed_ = false;  // the owner reads no more either
  bool peer_is_done_ = false;
  bool end_sent_ = false;        // an end of file was sent to the peer
  bool owner_notified_ = false;  // the owner was told that the peer writes no more
  bool has_failed_ = false;
  bool has_judged_silence_ = false;
  Instant close_by_{INT64_MAX};
  mutable std::atomic<bool> is_abandoned_ = false;
  // Guarded by mutex_:
  bool is_open_ = false;
  bool is_ended_ = false;
  std::optional<Error> failure_;
  std::uint64_t sent_ = 0;
};

}  // namespace mayfly::elastic
