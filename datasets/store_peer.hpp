#pragma once

// The store of one other host, as one worker uses it, and those of all other hosts of a view
// (datasets/peer_stores.hpp).

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/net/addresses.hpp"
#include "base/net/wake_up.hpp"
#include "base/time.hpp"
#include "datasets/core/store_plan.hpp"
#include "datasets/store_reader.hpp"

namespace mayfly::datasets {

/// Any thread.
class StorePeer {
 public:
  struct Address {
    Endpoint endpoint;
    std::uint64_t store = 0;
  };
  /// Parses "HOST:PORT/STORE"; nothing if the text has another form.
  [[nodiscard]] static std::optional<Address> parse(const std::string& text);
  [[nodiscard]] static std::string to_text(const Address& address);

  /// `before`: the same host in the previous view, or null. Its last index counts until it sends a
  /// new one.
  StorePeer(Address address, const StoreKey& key, Duration patience, const StorePeer* before);

  /// Most connections to the host at a time; threads that need one more wait. A host serves one
  /// image after the other, so more connections would only keep others from connecting.
  static constexpr std::size_t kConnections = 3;

  /// Two hosts with the same number have the same store.
  [[nodiscard]] std::uint64_t store() const { return address_.store; }
  /// The host keeps the image, as far as is known.
  [[nodiscard]] bool keeps(std::uint64_t image) const;

  /// Asks for the host's index, if it is not known for this epoch.
  void update(std::uint64_t epoch, std::uint64_t images, const AbortSignal& stop);
  /// Fetches images that are needed now, so it waits no longer than is usual. After a failure a
  /// host that has left is asked whether it is gone.
  void fetch(std::span<WantedImage> wanted, const AbortSignal& stop);

  /// Sends the host an image that no host keeps, if it has room for it as far as is known; waits no
  /// longer than is usual. False: it has no room.
  [[nodiscard]] bool offer(std::uint64_t image, ByteSpan bytes, const AbortSignal& stop);

  // For callers that can wait:
  /// The host's present index, if it answers. A host that has left and does not answer counts as
  /// gone.
  [[nodiscard]] std::optional<StoreIndex> ask(std::uint64_t images, const AbortSignal& stop);
  /// False: all connections were in use, and the host was not asked.
  [[nodiscard]] bool fetch_in_background(std::span<WantedImage> wanted, const AbortSignal& stop);

  /// The host has left the view, in which it was last with these other hosts, and may still answer
  /// for some time. The first call counts; it comes before the host is among the leavers of a view.
  void leave(std::vector<std::uint64_t> was_with);
  /// Only for a host that has left: whether the host with this store was in its last view.
  [[nodiscard]] bool is_known_to(std::uint64_t store) const;
  [[nodiscard]] bool is_gone() const { return is_gone_; }
  /// Only for a host that has left: no image is needed from it any more.
  void mark_gone() { is_gone_ = true; }

 private:
  class Reader;

  void learn(StoreIndex index, Instant requested_at);

  const Address address_;
  const StoreKey key_;
  std::atomic<bool> has_left_{false};
  std::atomic<bool> is_gone_{false};
  std::vector<std::uint64_t> was_with_;  // fixed when the host has left
  std::mutex request_mutex_;             // guards the next four
  bool is_known_ = false;
  std::uint64_t epoch_ = UINT64_MAX;
  Instant epoch_begun_;
  Instant requested_at_;
  mutable std::mutex mutex_;  // guards everything below
  StoreIndex index_;
  Instant index_requested_at_;                         // of the request for index_
  std::condition_variable returned_;                   // a reader was returned to readers_
  std::vector<std::unique_ptr<StoreReader>> readers_;  // not in use now
  std::size_t readers_made_ = 0;
  AnswerTimes times_;
  Instant last_failure_;  // of a fetch
};

/// The other hosts of a view.
struct StorePeers {
  StoreKey key;
  AbortSignal over;
  std::vector<std::shared_ptr<StorePeer>> hosts;    ///< ascending by their stores
  std::vector<std::shared_ptr<StorePeer>> leavers;  ///< hosts of earlier views; some may be gone
  bool copies = false;  ///< among the workers of its host, this one copies for the store
};

}  // namespace mayfly::datasets
