#pragma once

// The protocol by which the coordinator sends a data set to a worker that has none (--data-from
// coordinator), on a connection like those for checkpoints (checkpoint_transfer.hpp). The worker
// sends a request of kind kData. The answer is kTransfer, or kNothing if the coordinator is serving
// other workers and this one has to ask again.
//
// After kTransfer the coordinator sends a head, which describes the data set. The worker answers
// with the position that it had reached before an earlier connection broke, or closes the
// connection if it already has the data set. The coordinator sends the files from that position on,
// in the order of their names: a frame with name and size, the content, and a frame with the hash
// of the whole file. An empty name marks the end. If the position is within a file, the coordinator
// first reads the part that the worker has, to compute the hash, and sends empty frames meanwhile.

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "datasets/dataset.hpp"

namespace mayfly::engine {

/// The description of a data set.
struct DataHead {
  Digest digest;     ///< of the training content
  std::string file;  ///< the name of the only file, if the data set is one file and not a folder
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  Digest listing{};  ///< of the names and sizes of all files, also those of the test part
  Digest times{};    ///< of their modification times, which may differ in a standby's copy
  friend bool operator==(const DataHead&, const DataHead&) = default;

  static void fields(auto& io, auto& r) {
    io.wire(r.digest);
    io.wire(r.file);
    io.wire(r.files);
    io.wire(r.bytes);
    io.wire(r.listing);
    io.wire(r.times);
  }
};

/// The number of complete files, and of bytes of the next one.
struct DataPosition {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
};

/// Sends the coordinator's data set to a few workers at once, with low priority. Any thread.
class DataSender {
 public:
  /// The files are listed at the first request. `digest` is that of the opened data set.
  DataSender(std::string data, const Digest& digest);
  /// Cancels transfers in progress.
  ~DataSender();

  /// Answers a request of kind kData that was received on this connection.
  void take(UniqueFd socket, std::string host);

 private:
  struct Visit {
    UniqueFd socket;
    std::string host;
    std::atomic<bool> is_over = false;
    std::thread thread;
  };

  void serve(Visit& visit);
  Result<void> send_to(int fd);

  void look_at_files();

  const std::string data_;
  const Digest digest_;
  std::once_flag looked_;  // the first request fills these two:
  std::optional<Result<datasets::DatasetFiles>> files_;
  DataHead head_;
  std::mutex mutex_;
  bool is_closing_ = false;  // guarded by mutex_, as all below
  std::list<Visit> visits_;
};

/// A data set that is being received into a folder, over any number of connections.
class IncomingData {
 public:
  /// `folder` exists and is empty.
  explicit IncomingData(std::string folder) : folder_(std::move(folder)) {}

  /// Receives the rest of the data set, after the head. Calls `on_progress` with the number of
  /// bytes received so far after each chunk or empty frame. After kPeerLost and kDeadline the
  /// caller should call it again with another connection; kPeerLost is also the error if a file
  /// arrives with a wrong hash for the first time. kCorrupt if that happens twice, or if the
  /// coordinator's data set has changed; kIo.
  [[nodiscard]] Result<void> receive(int fd, const DataHead& head,
                                     const std::function<void(std::uint64_t)>& on_progress);

 private:
  [[nodiscard]] Result<bool> receive_file(int fd,
                                          const std::function<void(std::uint64_t)>& on_progress);

  const std::string folder_;
  std::optional<DataHead> head_;
  DataPosition position_;
  std::uint64_t received_ = 0;
  std::optional<std::uint64_t> damaged_;  // number of the last file that arrived with a wrong hash
  std::unique_ptr<Digester> digester_ = std::make_unique<Digester>();  // of the incomplete file
};

/// The head that follows the answer kTransfer.
[[nodiscard]] Result<DataHead> receive_data_head(int fd);

// The frame of a head.
[[nodiscard]] Bytes encode(const DataHead& head);
[[nodiscard]] Result<DataHead> decode_data_head(ByteSpan bytes);
/// Whether a file of that name is inside the folder into which it is received.
[[nodiscard]] bool is_inside(const std::string& name);

}  // namespace mayfly::engine
