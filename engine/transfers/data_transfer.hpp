#pragma once

// How a data set travels from the coordinator to a worker that has none (--data-from coordinator),
// on a connection as checkpoints have (checkpoint_transfer.hpp), after a request of kind kData and
// the answer kTransfer; kNothing means that others are served now, and the worker comes again.
//
// The coordinator sends a head: what travels. The worker answers with the position that it has
// reached before a connection broke, or closes if it finds that the data set is there. Then come
// the files from that position on, in the order of their names: a frame with name and size, the
// bytes as they are, a frame with the hash of the whole file. An empty name is the end. Before a
// file that goes on come empty frames, while the coordinator reads what the worker has of it.

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

/// What a data set consists of.
struct DataHead {
  Digest digest;     ///< of the training content
  std::string file;  ///< the name of the only file, if the data set is that and not its folder
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  Digest listing{};  ///< of the names and sizes of all files, also those of the test part
  Digest times{};    ///< of their last changes; a standby that takes over may have others
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

/// So many files are complete, and so many bytes of the next.
struct DataPosition {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
};

/// Sends the coordinator's data set, to a few workers at once, with low priority. Any thread.
class DataSender {
 public:
  /// Looks at the files at the first request. `digest` is that of the opened data set.
  DataSender(std::string data, const Digest& digest);
  /// Cancels transfers in progress.
  ~DataSender();

  /// Answers a request of kind kData that came on this connection.
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

/// A data set that is being received into a folder, over as many connections as it takes.
class IncomingData {
 public:
  /// `folder` is there and empty.
  explicit IncomingData(std::string folder) : folder_(std::move(folder)) {}

  /// Receives all that is left, after the head; `on_progress` hears of all bytes so far after each
  /// chunk or empty frame. kPeerLost and kDeadline: call it again with another connection, also for
  /// a file that did not arrive as it was sent, the first time; kCorrupt the second time, or if the
  /// coordinator's data set is not what it was; kIo.
  [[nodiscard]] Result<void> receive(int fd, const DataHead& head,
                                     const std::function<void(std::uint64_t)>& on_progress);

 private:
  [[nodiscard]] Result<bool> receive_file(int fd,
                                          const std::function<void(std::uint64_t)>& on_progress);

  const std::string folder_;
  std::optional<DataHead> head_;
  DataPosition position_;
  std::uint64_t received_ = 0;
  std::optional<std::uint64_t> damaged_;  // the last file that came with another hash
  std::unique_ptr<Digester> digester_ = std::make_unique<Digester>();  // of the file under way
};

/// The head that follows the answer kTransfer.
[[nodiscard]] Result<DataHead> receive_data_head(int fd);

// Their frames.
[[nodiscard]] Bytes encode(const DataHead& head);
[[nodiscard]] Result<DataHead> decode_data_head(ByteSpan bytes);
/// Whether a file of that name stays in the folder that it is received into.
[[nodiscard]] bool is_inside(const std::string& name);

}  // namespace mayfly::engine
