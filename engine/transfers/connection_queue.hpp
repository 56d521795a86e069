#pragma once

// A queue of connections that one thread serves, one after the other.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace mayfly::engine {

class ConnectionQueue {
 public:
  struct Connection {
    UniqueFd socket;
    std::string host;  ///< for logs
  };
  /// Called on the queue's thread. May move the socket out of the connection, to have it served
  /// elsewhere.
  using Serve = std::function<Result<void>(Connection&)>;

  /// `thread`: its name, at most 15 characters.
  explicit ConnectionQueue(const char* thread);
  /// Shuts down the connection that is being served; the waiting ones are not served.
  ~ConnectionQueue();

  /// Queues this connection. If too many wait, the one that has waited longest is closed, and its
  /// client tries again; so is a connection if the process has no descriptor left when its turn
  /// comes. Any thread.
  void add(Connection connection, Serve serve);
  /// Whether a connection is being served or waits for it. Any thread.
  [[nodiscard]] bool is_busy() const { return pending_ > 0; }

 private:
  struct Entry {
    Connection connection;
    Serve serve;
  };

  void run();

  std::atomic<int> pending_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> waiting_;  // guarded by mutex_
  int serving_ = -1;           // guarded by mutex_; ~ConnectionQueue() shuts it down
  bool is_closing_ = false;    // guarded by mutex_
  std::thread thread_;
};

}  // namespace mayfly::engine
