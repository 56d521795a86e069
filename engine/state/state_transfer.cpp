#include "engine/state/state_transfer.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "base/net/sockets.hpp"
#include "base/thread_priority.hpp"
#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "base/unique_fd.hpp"
#include "elastic/net/job_token.hpp"
#include "elastic/net/tls_link.hpp"

namespace mayfly::engine {
namespace {

// Limit of the connections that have sent no request yet: of members whose requests have not
// arrived, or of unknown clients.
constexpr std::size_t kStrangersMax = 256;
// Bytes that are copied, sent, received or hashed at a time; they stay in a core's cache between
// two of these operations.
constexpr std::size_t kChunkBytes = std::size_t{256} << 10;
// A client sends its request at once; without one the connection is closed after this time.
constexpr Duration kRequestTimeout = seconds(2);
constexpr int kPollMs = 500;

/// One connection, from connect() to the last byte.
class Incoming {
 public:
  Incoming(const WantedPart& part, PartRequest request, ByteSpan token)
      : part_(part), request_(request), token_(token) {}

  [[nodiscard]] Result<void> connect() {
    if (part_.donor.port == 0 || part_.donor.host.back() != '\0') {
      return lost("it has reported no address");
    }
    TRY_ASSIGN(UniqueFd fd, start_connect_tcp({part_.donor.host.data(), part_.donor.port}));
    if (!fd.valid()) {
      return lost("it does not accept connections");
    }
    fd_ = std::move(fd);
    return {};
  }

  [[nodiscard]] bool done() const { return received_digest_ == digest_.size(); }
  [[nodiscard]] pollfd polled() const {
    return {done() ? -1 : fd_.get(), request_sent_ ? short{POLLIN} : short{POLLOUT}, 0};
  }
  /// Sends or receives as much as is possible without blocking, after poll() has returned.
  [[nodiscard]] Result<void> advance() {
    if (!request_sent_) {
      return send_request();
    }
    if (received_header_ < header_.size()) {
      return receive_header();
    }
    return received_bytes_ < part_.into.size() ? receive_bytes() : receive_digest();
  }
  /// To be called when everything is received: compares the digest of the bytes with the donor's.
  [[nodiscard]] Result<void> check() const {
    if (digester_->finish() != std::bit_cast<Digest>(digest_)) {
      return Error{Errc::kCorrupt, "a part of the state arrived with another hash"};
    }
    return {};
  }

 private:
  [[nodiscard]] Error lost(const char* why) const {
    const bool has_address = part_.donor.host.back() == '\0';
    Error error{Errc::kPeerLost,
                fmt::format("the donor at {}:{} sends no state: {}",
                            has_address ? part_.donor.host.data() : "?", part_.donor.port, why)};
    if (part_.member != MemberId{}) {
      error.culprit = part_.member;
    }
    return error;
  }
  Result<void> send_request() {
    if (const int error = connection_error(fd_.get()); error != 0) {
      return lost(std::strerror(error));
    }
    tune_stream(fd_.get());
    if (elastic::is_encrypted(token_)) {
      fd_ = elastic::secure_client(std::move(fd_), token_).fd;
    }
    // The request always fits into the empty send buffer of a new connection.
    const Moved sent = send_some(fd_.get(), &request_, sizeof request_);
    request_sent_ = true;
    return sent.bytes == sizeof request_ ? Result<void>() : lost("the connection broke");
  }

  /// Receives into `out` after its first `received` bytes; returns the number of new bytes.
  Result<std::size_t> receive(std::span<std::byte> out, std::size_t& received) {
    const std::span<std::byte> rest = out.subspan(received);
    const Moved got = receive_some(fd_.get(), rest.data(), std::min(rest.size(), kChunkBytes));
    received += got.bytes;
    return got.closed && !done() ? Result<std::size_t>(lost("it closed the connection"))
                                 : Result<std::size_t>(got.bytes);
  }

  Result<void> receive_header() {
    TRY(receive(header_, received_header_));
    const auto header = std::bit_cast<PartHeader>(header_);
    if (received_header_ == header_.size() &&
        (header.magic != kPartMagic || header.bytes != part_.into.size())) {
      return Error{Errc::kCorrupt, "a donor offers other data than its part of the state"};
    }
    return {};
  }

  Result<void> receive_bytes() {
    const std::size_t before = received_bytes_;
    TRY_ASSIGN(const std::size_t got, receive(part_.into, received_bytes_));
    digester_->add(ByteSpan(part_.into).subspan(before, got));
    return {};
  }

  Result<void> receive_digest() {
    TRY(receive(digest_, received_digest_));
    return {};
  }

  const WantedPart& part_;
  PartRequest request_;
  ByteSpan token_;
  UniqueFd fd_;
  bool request_sent_ = false;
  std::array<std::byte, sizeof(PartHeader)> header_{};
  std::size_t received_header_ = 0;
  std::size_t received_bytes_ = 0;
  std::unique_ptr<Digester> digester_ = std::make_unique<Digester>();  // of these bytes
  std::array<std::byte, sizeof(Digest)> digest_{};
  std::size_t received_digest_ = 0;
};

/// Waits for the next bytes; kAborted if they are not needed any more, kPeerLost after `idle_max`.
Result<void> wait(std::vector<pollfd>& polled, Duration idle_max) {
  const int ready = ::poll(polled.data(), polled.size(), static_cast<int>(to_ms(idle_max)));
  if ((polled.back().revents & POLLIN) != 0) {
    return Error{Errc::kAborted, "the state is not needed any more"};
  }
  if (ready == 0) {
    return Error{Errc::kPeerLost, fmt::format("no donor has sent any part of the state for {} ms",
                                              static_cast<long>(to_ms(idle_max)))};
  }
  return {};
}

Result<void> receive_all(std::vector<Incoming>& connections, int stop_fd, Duration idle_max) {
  std::vector<pollfd> polled(connections.size() + 1);
  const auto is_done = [](const Incoming& connection) { return connection.done(); };
  while (!std::all_of(connections.begin(), connections.end(), is_done)) {
    std::transform(connections.begin(), connections.end(), polled.begin(),
                   [](const Incoming& connection) { return connection.polled(); });
    polled.back() = {stop_fd, POLLIN, 0};
    TRY(wait(polled, idle_max));
    for (std::size_t i = 0; i < connections.size(); ++i) {
      if (polled[i].revents == 0) {
        continue;
      }
      TRY(connections[i].advance());
    }
  }
  return {};
}

}  // namespace

/// A connection of an observer, or of an unknown client.
class StateDonor::Connection {
 public:
  Connection(UniqueFd fd, ByteSpan token)
      : who_(peer_name(fd.get())), last_progress_(monotonic_now()) {
    const bool is_encrypted = elastic::is_encrypted(token);
    fd_ = is_encrypted ? elastic::secure_server(std::move(fd), token).fd : std::move(fd);
  }

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] const std::string& who() const { return who_; }
  /// Whether the client has requested a copy with the right key.
  [[nodiscard]] bool is_observer() const { return copy_ != nullptr; }
  [[nodiscard]] short events() const {
    if (copy_ == nullptr) {
      return POLLIN;
    }
    return waits_for_copy() ? short{0} : POLLOUT;
  }
  [[nodiscard]] bool timed_out(Instant now) {
    if (waits_for_copy()) {  // no bytes can be sent, which is not the client's fault
      last_progress_ = now;
    }
    return now - last_progress_ > (copy_ == nullptr ? kRequestTimeout : kStateIdleMax);
  }
  /// Receives or sends as much as is possible without blocking. False: the connection has ended.
  [[nodiscard]] bool advance(const StateDonor& donor) {
    return copy_ == nullptr ? receive_request(donor) : send_copy();
  }

 private:
  bool receive_request(const StateDonor& donor) {
    const Moved got = receive_some(fd_.get(), raw_.data() + received_, raw_.size() - received_);
    received_ += got.bytes;
    if (received_ < raw_.size()) {
      return !got.closed;
    }
    copy_ = donor.find(std::bit_cast<PartRequest>(raw_));
    return copy_ != nullptr;
  }

  /// Whether all bytes that are copied so far have been sent, and more will be copied.
  [[nodiscard]] bool waits_for_copy() const {
    return copy_ != nullptr && sent_header_ == sizeof(PartHeader) &&
           sent_bytes_ < copy_->bytes.size() && sent_bytes_ == copy_->copied;
  }

  /// Sends from `bytes` after the first `sent`, which it updates. False: the connection has ended.
  bool send(ByteSpan bytes, std::size_t& sent) {
    const ByteSpan rest = bytes.subspan(sent);
    const Moved moved = send_some(fd_.get(), rest.data(), std::min(rest.size(), kChunkBytes));
    sent += moved.bytes;
    if (moved.bytes > 0) {
      last_progress_ = monotonic_now();
    }
    return !moved.closed;
  }

  bool send_copy() {
    if (waits_for_copy()) {
      return !at_end(fd_.get());
    }
    const PartHeader header{kPartMagic, copy_->bytes.size()};
    if (sent_header_ < sizeof header) {
      return send(std::as_bytes(std::span(&header, 1)), sent_header_);
    }
    if (sent_bytes_ < copy_->bytes.size()) {
      const std::size_t before = sent_bytes_;
      const ByteSpan copied = copy_->bytes.span().first(copy_->copied);
      const bool goes_on = send(copied, sent_bytes_);
      digester_.add(copied.subspan(before, sent_bytes_ - before));
      return goes_on;
    }
    const Digest digest = digester_.finish();
    return send(std::as_bytes(std::span(&digest, 1)), sent_digest_) && sent_digest_ < sizeof digest;
  }

  const std::string who_;
  UniqueFd fd_;
  Instant last_progress_;
  std::array<std::byte, sizeof(PartRequest)> raw_{};
  std::size_t received_ = 0;
  std::shared_ptr<const Copy> copy_;
  std::size_t sent_header_ = 0;
  std::size_t sent_bytes_ = 0;
  Digester digester_;  // of these bytes
  std::size_t sent_digest_ = 0;
};

StateDonor::StateDonor(std::string host, Priority priority, Bytes token)
    : host_(std::move(host)), priority_(priority), token_(std::move(token)) {}

StateDonor::~StateDonor() {
  stopping_ = true;
  if (server_.joinable()) {
    wake_.notify();
    server_.join();
  }
  if (copier_.joinable()) {
    copier_.join();
  }
}

Result<void> StateDonor::listen() {
  if (server_.joinable()) {
    return {};
  }
  TRY_ASSIGN(UniqueFd listener, listen_tcp({host_, 0}));
  const auto [host, port] = bound_endpoint(listener.get());
  if (host.size() >= address_.host.size()) {
    return Error{Errc::kUnsupported, "an address of this length cannot be sent: " + host};
  }
  std::ranges::copy(host, address_.host.begin());
  address_.port = port;
  listener_ = std::move(listener);
  server_ = std::thread([this] { serve(); });
  return {};
}

Result<DonorAddress> StateDonor::offer(ViewId since, std::uint64_t key, PackFunction pack,
                                       PartRange part) {
  TRY(listen());
  if (copier_.joinable()) {
    copier_.join();
  }
  const auto made = std::make_shared<Copy>();
  made->key = key;
  made->bytes = PackedBytes(part.last - part.first);
  {
    const std::lock_guard lock(mutex_);
    copying_ = true;
    copies_[since] = made;
  }
  copier_ = std::thread(
      [this, pack = std::move(pack), first = part.first, made] { copy(pack, first, *made); });
  return address_;
}

void StateDonor::copy(const PackFunction& pack, std::size_t first, Copy& copy) {
  pthread_setname_np(pthread_self(), "state-copy");
  const std::span<std::byte> bytes = copy.bytes.span();
  for (std::size_t done = 0; done < bytes.size();) {
    const std::size_t count = std::min(bytes.size() - done, kChunkBytes);
    pack(first + done, bytes.subspan(done, count));
    done += count;
    copy.copied = done;
    wake_.notify();
  }
  {
    const std::lock_guard lock(mutex_);
    copying_ = false;
  }
  copied_.notify_all();
}

void StateDonor::wait_until_copied() {
  std::unique_lock lock(mutex_);
  copied_.wait(lock, [this] { return !copying_; });
}

void StateDonor::keep_only(std::span<const ViewId> wanted) {
  const std::lock_guard lock(mutex_);
  std::erase_if(copies_, [wanted](const auto& entry) {
    return std::find(wanted.begin(), wanted.end(), entry.first) == wanted.end();
  });
}

std::size_t StateDonor::copy_count() const {
  const std::lock_guard lock(mutex_);
  return copies_.size();
}

std::shared_ptr<const StateDonor::Copy> StateDonor::find(const PartRequest& request) const {
  const std::lock_guard lock(mutex_);
  const auto place = copies_.find(request.since);
  const bool knows =
      request.magic == kPartMagic && place != copies_.end() && place->second->key == request.key;
  return knows ? place->second : nullptr;
}

/// Accepts the waiting connections. False: this process has no descriptors left for them.
bool StateDonor::accept_connections(Connections& connections) {
  const AcceptEnd end = accept_waiting(listener_.get(), kStrangersMax, [&](UniqueFd fd) {
    auto connection = std::make_unique<Connection>(std::move(fd), token_);
    // The request of an observer has usually arrived already. Reading it here ensures that the
    // observer is not counted among the clients without a request.
    if (!connection->advance(*this)) {
      turn_away(*connection, "it requested nothing that is offered");
      return;
    }
    if (!connection->is_observer()) {
      make_place(connections);
    }
    connections.push_back(std::move(connection));
  });
  return end != AcceptEnd::kNoDescriptors;
}

/// If too many connections have sent no request yet, closes the one that has waited longest.
/// Observers know the view's key; there are at most as many as the view has members.
void StateDonor::make_place(Connections& connections) {
  const auto asks_for_nothing = [](const auto& each) { return !each->is_observer(); };
  const auto strangers = std::ranges::count_if(connections, asks_for_nothing);
  if (static_cast<std::size_t>(strangers) < kStrangersMax) {
    return;
  }
  const auto place = std::ranges::find_if(connections, asks_for_nothing);
  turn_away(**place, "too many connections without a request");
  connections.erase(place);
}

void StateDonor::turn_away(const Connection& connection, const char* why) {
  if (!connection.is_observer()) {  // an observer has received its copy, or was lost
    rejection_log_.turned_away(connection.who(), why);
  }
}

void StateDonor::advance_all(Connections& connections, std::span<const pollfd> polled) {
  const Instant now = monotonic_now();
  for (std::size_t i = 0; i < connections.size(); ++i) {
    const bool is_over = polled[i].revents != 0 && !connections[i]->advance(*this);
    if (is_over || connections[i]->timed_out(now)) {
      turn_away(*connections[i],
                is_over ? "it requested nothing that is offered" : "it sent no request in time");
      connections[i].reset();
    }
  }
  std::erase(connections, nullptr);
}

void StateDonor::serve() {
  pthread_setname_np(pthread_self(), "state-donor");
  if (priority_ == Priority::kLow) {
    run_with_low_priority();
  }
  Connections connections;
  std::vector<pollfd> polled;
  bool may_accept = true;  // false after accept() failed: trying again at once would be a busy loop
  while (!stopping_) {
    polled = {{wake_.fd(), POLLIN, 0}, {listener_.get(), may_accept ? short{POLLIN} : short{0}, 0}};
    for (const auto& connection : connections) {
      polled.push_back({connection->fd(), connection->events(), 0});
    }
    (void)::poll(polled.data(), polled.size(),
                 may_accept ? kPollMs : static_cast<int>(to_ms(kAcceptRetryDelay)));
    wake_.clear();
    advance_all(connections, std::span<const pollfd>(polled).subspan(2));
    may_accept = accept_connections(connections);
  }
}

Result<void> fetch_parts(ViewId since, std::uint64_t key, const std::vector<WantedPart>& parts,
                         int stop_fd, Duration idle_max, ByteSpan token) {
  std::vector<Incoming> connections;
  for (const WantedPart& part : parts) {
    connections.emplace_back(part, PartRequest{kPartMagic, since, key}, token);
    TRY(connections.back().connect());
  }
  TRY(receive_all(connections, stop_fd, idle_max));
  for (const Incoming& connection : connections) {
    TRY(connection.check());
  }
  return {};
}

}  // namespace mayfly::engine
