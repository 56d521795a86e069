#pragma once

// A ring all-reduce over TCP with only sockets and poll(): what can be reached by careful
// programming without a library. It does not use Mayfly's transports, on purpose. One thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::peers {

class PollRing {
 public:
  /// Listens on loopback at a port that the system chooses.
  static Result<std::unique_ptr<PollRing>> listen();

  [[nodiscard]] std::string address() const { return std::to_string(port_); }
  /// Connects to the next rank and accepts the previous one; blocks until both are connected.
  [[nodiscard]] Result<void> connect(std::uint32_t rank, const std::vector<std::string>& addresses);

  /// Ends all connections; the neighbours see it.
  void disconnect();

  /// Sums `count` elements of T (float or std::int32_t) in place.
  template <typename T>
  [[nodiscard]] Result<void> sum(T* data, std::size_t count);

 private:
  explicit PollRing(UniqueFd listener, std::uint16_t port)
      : listener_(std::move(listener)), port_(port) {}

  UniqueFd listener_;
  std::uint16_t port_;
  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 1;
  UniqueFd next_;
  UniqueFd previous_;
  std::vector<std::byte> piece_;
};

extern template Result<void> PollRing::sum<float>(float*, std::size_t);
extern template Result<void> PollRing::sum<std::int32_t>(std::int32_t*, std::size_t);

}  // namespace mayfly::peers
