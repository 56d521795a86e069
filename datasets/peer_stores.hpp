#pragma once

// The stores of the other hosts of a job, as one worker uses them (ADR 33): which of them keeps an
// image, and how to get it. Each host is asked what it keeps when a view begins and when an epoch
// begins; within an epoch no image is needed twice. What a host says is only a hint: an image that
// does not come, or not in time, or with another hash, is read from storage.

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "datasets/image_store.hpp"
#include "datasets/store_server.hpp"

namespace mayfly::datasets {

class PeerStores {
 public:
  /// Begins to listen on an interface (name or address); see StoreServer::start(). `patience` is
  /// the least time for which a host is waited for, see AnswerTimes.
  [[nodiscard]] static Result<std::shared_ptr<PeerStores>> start(
      std::shared_ptr<ImageStore> store, const std::string& host,
      Duration patience = AnswerTimes::kLeast);
  PeerStores(std::shared_ptr<ImageStore> store, std::unique_ptr<StoreServer> server,
             Duration patience);
  ~PeerStores();

  /// What others are told: "HOST:PORT/STORE".
  [[nodiscard]] std::string address() const;
  /// The worker is in a view with others at these addresses, its own perhaps among them; those of
  /// the same store, and texts that are no address, do not count. Any thread.
  void begin_view(const StoreKey& key, const std::vector<std::string>& addresses);
  /// Whoever waits for hosts of this view, or of an older one, waits no longer. Any thread.
  void end_view(std::uint64_t view);
  /// Fetches those of the images that other hosts keep; the rest is left without bytes. Any thread.
  void fetch(std::uint64_t epoch, std::span<WantedImage> wanted);

  /// Bytes that other hosts have been sent. Any thread.
  [[nodiscard]] std::uint64_t bytes_served() const { return server_->bytes_served(); }

 private:
  class Peer;
  struct PeersOfView;

  const std::shared_ptr<ImageStore> store_;
  const std::unique_ptr<StoreServer> server_;
  const Duration patience_;
  std::mutex mutex_;
  // Guarded by mutex_; also owned by the threads that fetch, which a new view does not wait for.
  std::shared_ptr<PeersOfView> peers_;
};

}  // namespace mayfly::datasets
