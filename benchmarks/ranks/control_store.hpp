#pragma once

// A view's rendezvous store, kept by a benchmark's driver (control_hub.hpp). A connection of its
// own, so that a member that waits for a key still hears its orders on the other one.

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "benchmarks/ranks/line_socket.hpp"
#include "collectives/group.hpp"

namespace mayfly::bench {

class ControlStore final : public collectives::RendezvousStore {
 public:
  /// `path` is the driver's socket; stores of one `name` share their keys.
  static Result<std::unique_ptr<ControlStore>> connect(const std::string& path,
                                                       const std::string& name);

  Result<void> set(const std::string& key, ByteSpan value) override;
  Result<Bytes> get(const std::string& key, Instant deadline) override;

 private:
  explicit ControlStore(LineSocket socket) : socket_(std::move(socket)) {}

  std::mutex mutex_;  // one request at a time
  LineSocket socket_;
  std::string asked_;  // a key whose answer is still to come, after a deadline
};

}  // namespace mayfly::bench
