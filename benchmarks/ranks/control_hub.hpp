#pragma once

// The driver's end of a benchmark's control connections: one Unix-domain socket in a scratch
// folder, to which rank processes connect. The rendezvous store of a view has a connection of its
// own, so that a member that waits for a key still receives orders on the other one. One thread.

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "benchmarks/ranks/line_socket.hpp"
#include "collectives/group.hpp"

namespace mayfly::bench {

class ControlHub {
 public:
  /// A message of a rank process.
  struct Message {
    std::size_t connection = 0;  ///< number of the connection; never reused
    std::string line;
    bool gone = false;  ///< there is no message: the connection has ended
  };

  /// Makes the scratch folder and listens. While a hub exists SIGINT and SIGTERM make next() fail
  /// with kAborted instead of ending the process, so that all files and processes are removed.
  static Result<std::unique_ptr<ControlHub>> open();
  ~ControlHub();
  ControlHub(const ControlHub&) = delete;
  ControlHub& operator=(const ControlHub&) = delete;

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] std::string path() const { return folder_ + "/control"; }

  /// The next message of any connection; requests of ControlStore (below) are answered by this
  /// function itself. kDeadline, or kAborted after a signal.
  [[nodiscard]] Result<Message> next(Instant deadline);
  /// kPeerLost if the connection has ended.
  [[nodiscard]] Result<void> send(std::size_t connection, const std::string& line);
  /// Later messages of this connection are ignored.
  void close(std::size_t connection);

 private:
  struct Connection {
    UniqueFd fd;
    LineBuffer buffer;
    std::optional<std::string> store;  ///< the store's name, if this is the connection of a store
  };
  struct Store {
    std::map<std::string, std::string> values;
    std::multimap<std::string, std::size_t> waiting;  ///< connections by key
  };

  ControlHub(std::string folder, UniqueFd listener);
  void accept_all();
  void read_from(std::size_t id);
  void take_line(std::size_t id, std::string line);
  void serve_store(std::size_t id, const std::string& line);
  Result<void> poll_once(Instant deadline);

  std::string folder_;
  UniqueFd listener_;
  std::map<std::size_t, Connection> connections_;
  std::map<std::string, Store> stores_;
  std::deque<Message> messages_;
  std::size_t next_id_ = 1;
};

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
  std::string asked_;  // a key that was given up at a deadline; its answer is late
};

}  // namespace mayfly::bench
