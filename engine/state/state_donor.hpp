#pragma once

// The sending side of a state transfer. A short-lived thread makes a copy while compute threads
// only read the weights; another thread sends copies to members that know the view's key: with low
// priority to observers, which receive it in the background, with usual priority to a member for
// which all wait.

#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.hpp"
#include "base/net/accept.hpp"
#include "base/net/wake_up.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "engine/state/state_transfer.hpp"
#include "nn/model_state.hpp"

namespace mayfly::engine {

class StateDonor {
 public:
  enum class Priority { kLow, kUsual };

  /// Listens on `host` once there is something to send. `token`: the job's, which decides whether
  /// connections are encrypted.
  explicit StateDonor(std::string host, Priority priority = Priority::kLow, Bytes token = {});
  ~StateDonor();

  // Trainer thread:
  /// Begins to copy a part of `state`, which must not change before wait_until_copied() returns.
  /// Returns the address from which members that know (since, key) can fetch the copy. kIo without
  /// a socket.
  [[nodiscard]] Result<DonorAddress> offer(ViewId since, std::uint64_t key,
                                           const nn::ModelState& state, PartRange part);
  /// Usually returns at once: a copy takes less time than a step.
  void wait_until_copied();
  /// Frees the copies of other views than these. Transfers that have begun are completed.
  void keep_only(std::span<const ViewId> wanted);
  [[nodiscard]] std::size_t copy_count() const;

 private:
  /// A part of the state, written by the copying thread and then only read.
  struct Copy {
    std::uint64_t key = 0;
    PackedBytes bytes;
    PartHeader header;
    std::atomic<bool> complete{false};  // bytes and header may be read
  };
  class Connection;
  using Connections = std::vector<std::unique_ptr<Connection>>;

  [[nodiscard]] Result<void> listen();
  void copy(const nn::ModelState& state, std::size_t first, Copy& copy);
  void serve();
  [[nodiscard]] bool accept_connections(Connections& connections);
  [[nodiscard]] bool make_place(Connections& connections);
  void turn_away(const Connection& connection, const char* why);
  void advance_all(Connections& connections, std::span<const pollfd> polled);
  [[nodiscard]] std::shared_ptr<const Copy> find(const PartRequest& request) const;

  std::string host_;
  Priority priority_;
  Bytes token_;
  DonorAddress address_;
  UniqueFd listener_;
  WakeUp wake_;  // wakes the server thread
  std::atomic<bool> stopping_{false};

  mutable std::mutex mutex_;
  std::condition_variable copied_;
  // Guarded by mutex_:
  bool copying_ = false;
  std::map<ViewId, std::shared_ptr<Copy>> copies_;  // shared with connections that send one

  RejectionLog rejection_log_{"state donor"};  // the server thread's
  std::thread copier_;
  std::thread server_;
};

}  // namespace mayfly::engine
