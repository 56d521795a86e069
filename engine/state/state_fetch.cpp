#include "engine/state/state_fetch.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "base/net/sockets.hpp"
#include "base/try_assign.hpp"
#include "base/unique_fd.hpp"
#include "elastic/net/job_token.hpp"
#include "elastic/net/tls_link.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kFetchChunkBytes = std::size_t{1} << 20;

/// One connection, from connect() to the last byte.
class Incoming {
 public:
  Incoming(const WantedPart& part, PartRequest request, ByteSpan token)
      : part_(part), request_(request), token_(token) {}

  [[nodiscard]] Result<void> connect() {
    if (part_.donor.port == 0 || part_.donor.host.back() != '\0') {
      return lost("it has told no address");
    }
    TRY_ASSIGN(UniqueFd fd, start_connect_tcp({part_.donor.host.data(), part_.donor.port}));
    if (!fd.valid()) {
      return lost("it does not accept connections");
    }
    fd_ = std::move(fd);
    return {};
  }

  [[nodiscard]] bool done() const { return received_ == sizeof(PartHeader) + part_.into.size(); }
  [[nodiscard]] pollfd polled() const {
    return {done() ? -1 : fd_.get(), said_ ? short{POLLIN} : short{POLLOUT}, 0};
  }
  /// Goes on after poll() said so.
  [[nodiscard]] Result<void> advance() {
    if (!said_) {
      return say();
    }
    return received_ < sizeof(PartHeader) ? receive_header() : receive_bytes();
  }
  /// The bytes are complete and what the donor copied.
  [[nodiscard]] Result<void> check() const {
    if (digest_of(ByteSpan(part_.into)) != header().digest) {
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
  [[nodiscard]] PartHeader header() const { return std::bit_cast<PartHeader>(raw_); }

  Result<void> say() {
    if (const int error = connection_error(fd_.get()); error != 0) {
      return lost(std::strerror(error));
    }
    tune_stream(fd_.get());
    if (elastic::is_encrypted(token_)) {
      fd_ = elastic::secure_client(std::move(fd_), token_).fd;
    }
    // Always fits into the buffer of a connection that has carried nothing yet.
    const Moved sent = send_some(fd_.get(), &request_, sizeof request_);
    said_ = true;
    return sent.bytes == sizeof request_ ? Result<void>() : lost("the connection broke");
  }

  Result<void> receive_header() {
    const Moved got = receive_some(fd_.get(), raw_.data() + received_, raw_.size() - received_);
    received_ += got.bytes;
    if (received_ == raw_.size() &&
        (header().magic != kPartMagic || header().bytes != part_.into.size())) {
      return Error{Errc::kCorrupt, "a donor offers something else than its part of the state"};
    }
    return got.closed && !done() ? lost("it closed the connection") : Result<void>();
  }

  Result<void> receive_bytes() {
    const std::span<std::byte> rest = part_.into.subspan(received_ - sizeof(PartHeader));
    const Moved got = receive_some(fd_.get(), rest.data(), std::min(rest.size(), kFetchChunkBytes));
    received_ += got.bytes;
    return got.closed && !done() ? lost("it closed the connection") : Result<void>();
  }

  const WantedPart& part_;
  PartRequest request_;
  ByteSpan token_;
  UniqueFd fd_;
  bool said_ = false;
  std::array<std::byte, sizeof(PartHeader)> raw_{};
  std::size_t received_ = 0;  // header included
};

/// Waits for the next bytes; kAborted or kPeerLost if there are none to come.
Result<void> wait(std::vector<pollfd>& polled, Duration idle_max) {
  const int ready = ::poll(polled.data(), polled.size(), static_cast<int>(to_ms(idle_max)));
  if ((polled.back().revents & POLLIN) != 0) {
    return Error{Errc::kAborted, "the state is not wanted any more"};
  }
  if (ready == 0) {
    return Error{Errc::kPeerLost, fmt::format("no donor has sent anything of the state for {} ms",
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
