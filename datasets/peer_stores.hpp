#pragma once

// The stores of the other hosts of a job, as one worker uses them (ADR 33): which of them keeps an
// image, and how to get it. Each host is asked what it keeps when a view begins and when an epoch
// begins; within an epoch no image is needed twice. What a host says is only a hint: an image that
// does not come, or not in time, or with another hash, is read from storage.
//
// A host that has left the view may go on to serve for some time, and others then copy what it
// alone keeps (datasets/store_copier.hpp). One that was lost does not answer.

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "datasets/core/sample_stream.hpp"
#include "datasets/image_store.hpp"
#include "datasets/store_copier.hpp"
#include "datasets/store_peer.hpp"
#include "datasets/store_server.hpp"

namespace mayfly::datasets {

class PeerStores {
 public:
  /// Begins to listen on an interface (name or address); see StoreServer::start(). `sizes`: of the
  /// images, in bytes. `patience` is the least time for which a host is waited for, see
  /// AnswerTimes.
  [[nodiscard]] static Result<std::shared_ptr<PeerStores>> start(
      std::shared_ptr<ImageStore> store, std::vector<std::uint32_t> sizes, const std::string& host,
      Duration patience = AnswerTimes::kLeast);
  PeerStores(std::shared_ptr<ImageStore> store, std::vector<std::uint32_t> sizes,
             std::unique_ptr<StoreServer> server, Duration patience);
  ~PeerStores();

  /// What others are told: "HOST:PORT/STORE".
  [[nodiscard]] std::string address() const;
  /// The worker is in a view with others at these addresses, in the same order for all, its own
  /// perhaps among them; those of the same store, and texts that are no address, do not count. Any
  /// thread.
  void begin_view(const StoreKey& key, const std::vector<std::string>& addresses);
  /// Ends the waits for hosts of this view and of older ones. Any thread.
  void end_view(std::uint64_t view);
  /// Fetches those of the images that other hosts keep; the rest is left without bytes. They are
  /// needed at this position of the stream. What a change of view interrupts is asked for again in
  /// the new view, if that begins soon. Any thread.
  void fetch(const SampleStream& stream, std::uint64_t position, std::span<WantedImage> wanted);
  /// A host that is in the view keeps the image, as far as is known. Any thread.
  [[nodiscard]] bool is_kept(std::uint64_t image);
  /// An image that was read from storage, and that neither this host nor, as far as is known,
  /// another one keeps: sends it to a host that has room, if there is one. Any thread.
  void offer(std::uint64_t image, ByteSpan bytes);
  /// The worker has left the job: the others may still have what its host keeps. Returns when
  /// no host has asked for some seconds, at the latest after two minutes, which is the longest
  /// warning that clouds give.
  void serve_after_leaving();

 private:
  [[nodiscard]] std::shared_ptr<StorePeers> current_peers();
  void fetch_from(StorePeers& peers, std::uint64_t epoch, std::span<WantedImage> wanted);

  const std::shared_ptr<ImageStore> store_;
  const std::unique_ptr<StoreServer> server_;
  const Duration patience_;
  std::mutex mutex_;
  std::condition_variable begun_;
  // Guarded by mutex_; also owned by the threads that fetch, which a new view does not wait for.
  std::shared_ptr<StorePeers> peers_;
  StoreCopier copier_;
};

}  // namespace mayfly::datasets
