#pragma once

// The stores of the other hosts of a job, as one worker uses them (ADR 33): which host keeps an
// image, and how to get it. Each host is asked for its index when a view begins and when an epoch
// begins; within an epoch no image is needed twice. An index is only a hint: an image that does not
// arrive, or arrives too late or with another hash, is read from storage.
//
// A host that has left the view may continue to serve for some time, and the other hosts copy the
// images that no other host keeps (datasets/store_copier.hpp). A host that was lost does not
// answer.

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
  /// Begins to listen on an interface (name or address); see StoreServer::start(). `sizes`: sizes
  /// of the images, in bytes. `patience` is the least time to wait for a host's answer, see
  /// AnswerTimes.
  [[nodiscard]] static Result<std::shared_ptr<PeerStores>> start(
      std::shared_ptr<ImageStore> store, std::vector<std::uint32_t> sizes, const std::string& host,
      Duration patience = AnswerTimes::kLeast);
  PeerStores(std::shared_ptr<ImageStore> store, std::vector<std::uint32_t> sizes,
             std::unique_ptr<StoreServer> server, Duration patience);
  ~PeerStores();

  /// The address for other hosts: "HOST:PORT/STORE".
  [[nodiscard]] std::string address() const;
  /// The worker is in a view with workers at these addresses, in the same order for all, perhaps
  /// including its own; addresses of the same store, and texts that are no address, do not count.
  /// Any thread.
  void begin_view(const StoreKey& key, const std::vector<std::string>& addresses);
  /// Ends the waits for hosts of this view and of older ones. Any thread.
  void end_view(std::uint64_t view);
  /// Fetches the images that other hosts keep; all other images are left without bytes. They are
  /// needed at this position of the stream. If a change of view interrupts a request, it is
  /// repeated in the new view, if that begins soon. Any thread.
  void fetch(const SampleStream& stream, std::uint64_t position, std::span<WantedImage> wanted);
  /// Some host of the view keeps the image, as far as is known. Any thread.
  [[nodiscard]] bool is_kept(std::uint64_t image);
  /// Sends an image to a host that has room, if there is one. The image was read from storage, and
  /// neither this host nor, as far as is known, another one keeps it. Any thread.
  void offer(std::uint64_t image, ByteSpan bytes);
  /// The worker has left the job, but other hosts may still need the images that its host keeps.
  /// Returns when no host has asked for some seconds, at the latest after two minutes, which is the
  /// longest warning that clouds give.
  void serve_after_leaving();

 private:
  [[nodiscard]] std::shared_ptr<StorePeers> current_peers();
  void fetch_from(StorePeers& peers, std::uint64_t epoch, std::span<WantedImage> wanted);

  const std::shared_ptr<ImageStore> store_;
  const std::unique_ptr<StoreServer> server_;
  const Duration patience_;
  std::mutex mutex_;
  std::condition_variable begun_;
  // Guarded by mutex_; also owned by the threads that fetch, for which a new view does not wait.
  std::shared_ptr<StorePeers> peers_;
  StoreCopier copier_;
};

}  // namespace mayfly::datasets
