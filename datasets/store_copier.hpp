#pragma once

// Copies images from the stores of other hosts into that of this host, in the background, so that
// they outlive the hosts that keep them now: carries out datasets/core/store_plan. The thread
// ("store-copy") has low priority, and rests seven eighths of the time so that gradients have the
// network. It rests only half of the time while it copies from a host that has left, because that
// host may be taken away at any moment.

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/time.hpp"
#include "datasets/core/sample_stream.hpp"
#include "datasets/image_store.hpp"
#include "datasets/store_peer.hpp"

namespace mayfly::datasets {

class StoreCopier {
 public:
  /// `sizes`: sizes of the images, in bytes.
  StoreCopier(std::shared_ptr<ImageStore> store, std::vector<std::uint32_t> sizes);
  /// Ends at once; the view must be over (StorePeers::over) if a request may be under way.
  ~StoreCopier();
  StoreCopier(const StoreCopier&) = delete;
  StoreCopier& operator=(const StoreCopier&) = delete;

  /// From now on copies in this view; null: in no view. Any thread.
  void begin_view(std::shared_ptr<StorePeers> peers);
  /// The order of images, and the position in it at which this worker reads now. Any thread.
  void note_position(const SampleStream& stream, std::uint64_t position);

 private:
  struct Round {
    /// The hosts of the view, in the order that all of them share; null: this host.
    std::vector<std::shared_ptr<StorePeer>> hosts;
    std::vector<std::shared_ptr<StorePeer>> leavers;
    StorePlan plan;
  };

  void run();
  [[nodiscard]] Duration copy_some(StorePeers& peers);
  [[nodiscard]] std::optional<Round> make_plan(StorePeers& peers);
  [[nodiscard]] StorePlan plan_with(const Round& round, const std::vector<StoreIndex>& of_hosts,
                                    const std::vector<StoreIndex>& of_leavers);
  [[nodiscard]] std::uint64_t pull(const Round& round, std::span<const StorePull> pulls,
                                   const AbortSignal& stop);
  void count_failures(std::span<const WantedImage> images, const AbortSignal& stop);
  [[nodiscard]] std::uint64_t keep_arrived(std::span<const WantedImage> images, bool as_second);
  void log_copied();
  [[nodiscard]] bool rest(const StorePeers& peers, Duration time);

  const std::shared_ptr<ImageStore> store_;
  const std::vector<std::uint32_t> sizes_;
  std::uint64_t copied_ = 0;        // images since the last line in the log; used by the thread
  std::uint64_t copied_bytes_ = 0;  // likewise
  std::map<std::uint64_t, int> failures_;  // number of failures by image, in this view; likewise
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  std::shared_ptr<StorePeers> peers_;
  std::optional<SampleStream> stream_;
  std::uint64_t position_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace mayfly::datasets
