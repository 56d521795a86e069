#pragma once

// One member's end of a connection to another, in simulated time: the product's exchanges send and
// receive through it. Bytes stay in order, arrive in pieces, and stop where the connection ends.

#include <cstddef>
#include <functional>
#include <span>

#include "collectives/tcp/channel.hpp"

namespace mayfly::sim {

class SimChannel final : public collectives::Channel {
 public:
  /// `accept` sends as many of the bytes as fit now, and returns their number.
  explicit SimChannel(std::function<std::size_t(ByteSpan data, bool more)> accept)
      : accept_(std::move(accept)) {}

  void arrived(ByteSpan data) { incoming_.insert(incoming_.end(), data.begin(), data.end()); }
  /// The other side has closed; bytes that arrived before can still be received.
  void end() { ended_ = true; }
  [[nodiscard]] bool ended() const { return ended_; }

  [[nodiscard]] Moved send(ByteSpan data, bool more) override;
  [[nodiscard]] Moved receive(std::span<std::byte> into) override;
  [[nodiscard]] Moved receive_and_reduce(std::span<std::byte> into,
                                         collectives::Reduction reduction,
                                         std::span<std::byte> scratch) override;
  /// Never called: no thread waits for a socket in simulated time.
  [[nodiscard]] bool watch(std::size_t wanted_bytes, bool wants_room, pollfd& watched) override;
  [[nodiscard]] bool unreachable() const override { return false; }
  [[nodiscard]] bool woken(short events) override;

 private:
  std::function<std::size_t(ByteSpan data, bool more)> accept_;
  Bytes incoming_;
  bool ended_ = false;
};

}  // namespace mayfly::sim
