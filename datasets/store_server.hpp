#pragma once

// The images of a host's store, for the readers of other hosts (datasets/store_protocol.hpp).

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/net/accept.hpp"
#include "base/net/addresses.hpp"
#include "base/net/wake_up.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "datasets/image_store.hpp"
#include "datasets/store_protocol.hpp"

namespace mayfly::datasets {

/// Serves the images of a store to readers of other hosts, on a thread of its own with low
/// priority: training goes first.
class StoreServer {
 public:
  /// Listens on a free port of an interface (name or address). Answers no requests before admit().
  /// kIo, kInvalidInput. The store outlives the server.
  [[nodiscard]] static Result<std::unique_ptr<StoreServer>> start(ImageStore& store,
                                                                  const std::string& host);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  /// Where readers connect; numeric.
  [[nodiscard]] Endpoint endpoint() const;
  /// From now on answers the members of this view, and of the one that was admitted before. Any
  /// thread.
  void admit(const StoreKey& key);
  /// When the last request was answered, or the start. Any thread.
  [[nodiscard]] Instant last_answer() const { return last_answer_; }
  /// Connections now. Any thread.
  [[nodiscard]] std::size_t readers() const { return readers_; }

 private:
  class Connection;
  struct Admitted {
    StoreKey now;
    StoreKey before;
    [[nodiscard]] bool has(const StoreKey& key) const {
      return key != StoreKey{} && (key == now || key == before);
    }
  };
  using Connections = std::vector<std::unique_ptr<Connection>>;

  StoreServer(ImageStore& store, UniqueFd listener);
  void serve();
  [[nodiscard]] Admitted admitted() const;
  [[nodiscard]] bool accept_connections(Connections& connections, const Admitted& admitted);
  void advance(std::unique_ptr<Connection>& connection, const Admitted& admitted);
  void close_excess(Connections& connections);

  ImageStore& store_;
  const UniqueFd listener_;
  WakeUp wake_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::size_t> readers_{0};
  std::atomic<Instant> last_answer_ = monotonic_now();
  mutable std::mutex mutex_;
  Admitted admitted_;  // guarded by mutex_
  RejectionLog log_{"image port"};
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace mayfly::datasets
