#include "elastic/net/tls_relay.hpp"

#include <linux/sockios.h>
#include <openssl/err.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/check.hpp"
#include "base/net/sockets.hpp"
#include "elastic/net/job_token.hpp"

namespace mayfly::elastic {
namespace {

constexpr const char* kIdentity = "mayfly";
constexpr std::array<unsigned char, 2> kAes256GcmSha384{0x13, 0x02};
// After this side's end of file the peer has so long to close, too.
constexpr Duration kCloseTimeout = seconds(10);

struct FreeContext {
  void operator()(SSL_CTX* context) const { ::SSL_CTX_free(context); }
};

/// The session that both sides act as if they had had before: a key and its cipher.
SSL_SESSION* session_of(SSL* ssl, const Bytes& key) {
  SSL_SESSION* session = ::SSL_SESSION_new();
  const SSL_CIPHER* cipher = ::SSL_CIPHER_find(ssl, kAes256GcmSha384.data());
  const bool made =
      session != nullptr && cipher != nullptr &&
      ::SSL_SESSION_set1_master_key(session, reinterpret_cast<const unsigned char*>(key.data()),
                                    key.size()) == 1 &&
      ::SSL_SESSION_set_cipher(session, cipher) == 1 &&
      ::SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
  ENSURE(made, "OpenSSL has TLS 1.3 with AES-256-GCM");
  return session;
}

const Bytes& key_of(SSL* ssl) {
  return *static_cast<const Bytes*>(::SSL_get_ex_data(ssl, 0));
}

int use_session(SSL* ssl, const EVP_MD* digest, const unsigned char** identity, std::size_t* size,
                SSL_SESSION** session) {
  if (digest != nullptr && ::EVP_MD_is_a(digest, "SHA384") == 0) {
    *session = nullptr;
    return 1;
  }
  *identity = reinterpret_cast<const unsigned char*>(kIdentity);
  *size = std::strlen(kIdentity);
  *session = session_of(ssl, key_of(ssl));
  return 1;
}

int find_session(SSL* ssl, const unsigned char* identity, std::size_t size, SSL_SESSION** session) {
  const bool is_ours = std::string_view(reinterpret_cast<const char*>(identity), size) == kIdentity;
  *session = is_ours ? session_of(ssl, key_of(ssl)) : nullptr;
  return 1;
}

SSL_CTX* make_context() {
  std::unique_ptr<SSL_CTX, FreeContext> context(::SSL_CTX_new(::TLS_method()));
  const bool made = context != nullptr &&
                    ::SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) == 1 &&
                    ::SSL_CTX_set_ciphersuites(context.get(), "TLS_AES_256_GCM_SHA384") == 1 &&
                    ::SSL_CTX_set_num_tickets(context.get(), 0) == 1;
  ENSURE(made, "OpenSSL has TLS 1.3 with AES-256-GCM");
  ::SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF);
  ::SSL_CTX_set_read_ahead(context.get(), 1);  // reads a whole record with one system call
  ::SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_mode(context.get(),
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  ::SSL_CTX_set_psk_use_session_callback(context.get(), use_session);
  ::SSL_CTX_set_psk_find_session_callback(context.get(), find_session);
  return context.release();
}

/// A human-readable reason of a failed handshake.
Error handshake_error(unsigned long code, bool is_server) {
  const int reason = ERR_GET_REASON(code);
  const bool is_plain = reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST ||
                        reason == SSL_R_PACKET_LENGTH_TOO_LONG;
  if (!is_plain) {
    return {Errc::kRefused, "wrong token (the TLS handshake failed)"};
  }
  return is_server ? Error{Errc::kCorrupt, "it does not use TLS"}
                   : Error{Errc::kRefused,
                           "wrong token: it is for encrypted connections, and the process that "
                           "answers there does not use TLS"};
}

}  // namespace

TlsRelay::TlsRelay(UniqueFd network, UniqueFd plain, TlsSide side, ByteSpan token, Bytes farewell)
    : network_(std::move(network)),
      plain_(std::move(plain)),
      is_server_(side == TlsSide::kServer),
      key_(tls_key(token)),
      farewell_(std::move(farewell)) {
  static SSL_CTX* const context = make_context();
  ssl_.reset(::SSL_new(context));
  ENSURE(ssl_ != nullptr && ::SSL_set_ex_data(ssl_.get(), 0, &key_) == 1 &&
             ::SSL_set_fd(ssl_.get(), network_.get()) == 1,
         "OpenSSL takes a connection");
  if (is_server_) {
    ::SSL_set_accept_state(ssl_.get());
  } else {
    ::SSL_set_connect_state(ssl_.get());
    ::SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER, nullptr);  // every certificate is rejected
  }
}

std::string TlsRelay::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_ ? failure_->detail : "";
}

bool TlsRelay::has_acknowledged(std::uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  int unacknowledged = 0;
  return sent_ >= bytes && network_.valid() &&
         ::ioctl(network_.get(), SIOCOUTQ, &unacknowledged) == 0 && unacknowledged == 0;
}

std::array<pollfd, 2> TlsRelay::polled() const {
  const auto wait = [](int fd, short events) { return pollfd{events != 0 ? fd : -1, events, 0}; };
  return {wait(network_.get(), network_events_), wait(plain_.get(), plain_events_)};
}

Instant TlsRelay::look_again_at() const {
  const bool may_be_silent = state_ == State::kHandshake && is_server_ && !has_judged_silence_;
  return may_be_silent ? began_ + kSilenceMax : close_by_;
}

bool TlsRelay::owes() const {
  pollfd owner{plain_.get(), POLLRDHUP, 0};
  return !end_sent_ && ::poll(&owner, 1, 0) == 1;
}

bool TlsRelay::is_over(Instant now) const {
  const bool is_read = peer_is_done_ && (from_peer_.is_empty() || owner_has_closed_);
  return has_failed_ || (end_sent_ && (is_read || now > close_by_));
}

Result<void> TlsRelay::wait_until_open(Instant deadline) const {
  std::unique_lock lock(mutex_);
  const auto left = std::max(deadline - monotonic_now(), Duration::zero());
  const bool is_decided =
      changed_.wait_for(lock, left, [this] { return is_open_ || is_ended_ || failure_; });
  if (failure_) {
    return *failure_;
  }
  if (is_ended_ && !is_open_) {
    return Error{Errc::kPeerLost, "the connection was closed before it was encrypted"};
  }
  return is_decided ? Result<void>() : Error{Errc::kDeadline, "no TLS handshake in time"};
}

void TlsRelay::fail(Error error) {
  has_failed_ = true;
  {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(error);
  }
  changed_.notify_all();
}

void TlsRelay::end() {
  plain_.reset();
  {
    const std::lock_guard lock(mutex_);
    is_ended_ = true;
    network_.reset();
  }
  changed_.notify_all();
}

bool TlsRelay::waits(int result) {
  const int error = ::SSL_get_error(ssl_.get(), result);
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
    network_events_ |= error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    return true;
  }
  return false;
}

bool TlsRelay::shake_hands(Instant now) {
  ERR_clear_error();
  const int result = ::SSL_do_handshake(ssl_.get());
  if (result == 1) {
    if (::SSL_session_reused(ssl_.get()) != 1) {  // the peer has a certificate instead of the key
      fail({Errc::kRefused, "wrong token (the peer does not know the key)"});
      return false;
    }
    state_ = State::kOpen;
    close_by_ = Instant{INT64_MAX};
    {
      const std::lock_guard lock(mutex_);
      is_open_ = true;
    }
    changed_.notify_all();
    return true;
  }
  if (waits(result)) {
    judge_silence(now);
    return false;
  }
  const unsigned long code = ERR_peek_error();
  fail(code != 0 ? handshake_error(code, is_server_)
                 : Error{Errc::kPeerLost, "the connection was closed during the TLS handshake"});
  return false;
}

/// A peer that waits for the coordinator's first message, as Mayfly does without TLS, is told that
/// this job uses TLS.
void TlsRelay::judge_silence(Instant now) {
  if (!is_server_ || has_judged_silence_ || now - began_ <= kSilenceMax) {
    return;
  }
  has_judged_silence_ = true;
  if (!farewell_.empty() && ::BIO_number_read(::SSL_get_rbio(ssl_.get())) == 0) {
    (void)send_some(network_.get(), farewell_.data(), farewell_.size());
    fail({Errc::kCorrupt, "it does not use TLS"});
  }
}

/// After the owner has closed its end, its bytes are sent if the handshake is over soon. The end is
/// also noticed while bytes wait: a coordinator writes its challenge at once, and a peer that stops
/// in the middle of the handshake must not keep the connection after the coordinator has closed it.
bool TlsRelay::waits_for_handshake(Instant now) {
  (void)take_from_owner();
  if (!owner_is_done_ && !owes()) {
    plain_events_ |= POLLRDHUP;
  } else if (close_by_.ns == INT64_MAX) {
    close_by_ = now + kCloseTimeout;
  }
  const bool is_pointless = is_abandoned_ || (owner_is_done_ && to_peer_.is_empty());
  return !has_failed_ && now <= close_by_ && !is_pointless;
}

bool TlsRelay::take_from_owner() {
  if (!to_peer_.is_empty() || owner_is_done_) {
    return false;
  }
  if (!owner_may_have_more_) {
    plain_events_ |= POLLIN;
    return false;
  }
  const Moved got = receive_some(plain_.get(), to_peer_.bytes.data(), to_peer_.bytes.size());
  if (got.bytes > 0) {
    to_peer_.first = 0;
    to_peer_.last = got.bytes;
    owner_may_have_more_ = to_peer_.last == to_peer_.bytes.size();
  } else if (got.closed) {
    owner_is_done_ = true;
  } else {
    owner_may_have_more_ = false;
    plain_events_ |= POLLIN;
  }
  return got.bytes > 0 || got.closed;
}

bool TlsRelay::send_to_peer() {
  if (to_peer_.is_empty()) {
    return false;
  }
  ERR_clear_error();
  const int sent = ::SSL_write(ssl_.get(), to_peer_.data(), static_cast<int>(to_peer_.size()));
  if (sent > 0) {
    to_peer_.first += static_cast<std::size_t>(sent);
    const std::lock_guard lock(mutex_);
    sent_ += static_cast<std::uint64_t>(sent);
    return true;
  }
  if (!waits(sent)) {
    fail({Errc::kPeerLost, "the connection broke"});
  }
  return false;
}

bool TlsRelay::send_end(Instant now) {
  if (!owner_is_done_ || !to_peer_.is_empty() || end_sent_) {
    return false;
  }
  (void)::SSL_shutdown(ssl_.get());
  ::shutdown(network_.get(), SHUT_WR);
  end_sent_ = true;
  close_by_ = now + kCloseTimeout;
  return true;
}

bool TlsRelay::take_from_peer() {
  if (!from_peer_.is_empty() || peer_is_done_) {
    return false;
  }
  if (!peer_may_have_more_) {
    network_events_ |= POLLIN;
    return false;
  }
  ERR_clear_error();
  const int got =
      ::SSL_read(ssl_.get(), from_peer_.bytes.data(), static_cast<int>(from_peer_.bytes.size()));
  if (got > 0) {
    from_peer_.first = 0;
    from_peer_.last = static_cast<std::size_t>(got);
    peer_may_have_more_ = ::SSL_has_pending(ssl_.get()) == 1;
    return true;
  }
  if (waits(got)) {
    peer_may_have_more_ = false;
    return false;
  }
  if (ERR_peek_error() != 0) {
    fail({Errc::kCorrupt, "data of the encrypted connection was changed on the way"});
    return false;
  }
  peer_is_done_ = true;  // the peer closed, or its process or host is lost
  return true;
}

bool TlsRelay::give_to_owner() {
  if (from_peer_.is_empty()) {
    if (peer_is_done_ && !owner_notified_) {
      owner_notified_ = true;
      ::shutdown(plain_.get(), SHUT_WR);
      return true;
    }
    return false;
  }
  const Moved given = owner_has_closed_
                          ? Moved{.bytes = from_peer_.size()}
                          : send_some(plain_.get(), from_peer_.data(), from_peer_.size());
  from_peer_.first += given.bytes;
  if (given.closed) {
    owner_has_closed_ = owner_is_done_ = true;
  } else if (given.bytes == 0) {
    plain_events_ |= POLLOUT;
  }
  return given.bytes > 0 || given.closed;
}

bool TlsRelay::advance(Instant now, const std::array<short, 2>& ready) {
  peer_may_have_more_ |= (ready[0] & ~POLLOUT) != 0;
  owner_may_have_more_ |= (ready[1] & ~POLLOUT) != 0;
  network_events_ = plain_events_ = 0;
  if (state_ == State::kHandshake && !shake_hands(now)) {
    return waits_for_handshake(now);
  }
  bool moved = true;
  for (int turns = 0; moved && !is_over(now) && turns < 16; ++turns) {
    network_events_ = plain_events_ = 0;
    moved = take_from_owner();
    moved = send_to_peer() || moved;
    moved = send_end(now) || moved;
    moved = take_from_peer() || moved;
    moved = give_to_owner() || moved;
  }
  if (moved) {  // lets other connections have a turn, then continues at once
    network_events_ |= POLLOUT;
  }
  return !is_over(now);
}

}  // namespace mayfly::elastic
