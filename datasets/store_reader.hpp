#pragma once

// What other hosts keep in their stores, fetched from them (datasets/store_protocol.hpp).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "base/net/addresses.hpp"
#include "base/net/wake_up.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "datasets/core/store_plan.hpp"
#include "datasets/store_protocol.hpp"

namespace mayfly::datasets {

/// An image that a reader wants, and what became of it.
struct WantedImage {
  std::uint64_t image = 0;
  std::uint64_t size = 0;   ///< in bytes, at least 1
  Bytes bytes;              ///< after StoreReader::fetch(): empty if it has to come from storage
  bool is_damaged = false;  ///< it arrived with another hash
};

/// A reader's connection to the store of one host. One thread.
class StoreReader {
 public:
  /// Connects with the first request. `host` is numeric.
  StoreReader(Endpoint host, const StoreKey& key);

  /// Asks for all images at once (or kStoreRequestMax at a time) and waits for them until the
  /// deadline, or until `stop` is raised (any thread). Never fails: what has not arrived whole and
  /// with its hash by then is left without bytes. Returns the number that have arrived. After a
  /// failure the connection is closed, and the host is not asked for kRetryFirst, and twice as long
  /// each further time, up to kRetryMost: a host that begins a view later is asked again soon, and
  /// one that is gone costs one deadline a second.
  std::size_t fetch(std::span<WantedImage> wanted, Instant deadline, const AbortSignal& stop);

  /// What the host keeps, of so many images; nothing if it has not answered by the deadline.
  /// Otherwise as fetch().
  [[nodiscard]] std::optional<StoreIndex> fetch_index(std::uint64_t images, Instant deadline,
                                                      const AbortSignal& stop);
  /// False after a failure.
  [[nodiscard]] bool is_connected() const { return fd_.valid(); }
  /// The next call asks even if one has just failed.
  void ask_at_once() { next_attempt_ = Instant(); }

  /// Sends an image that the host may keep. Whether it does is not known. Otherwise as fetch().
  void offer(std::uint64_t image, ByteSpan bytes, Instant deadline, const AbortSignal& stop);

  static constexpr Duration kRetryFirst = milliseconds(100);
  static constexpr Duration kRetryMost = seconds(1);

 private:
  [[nodiscard]] bool connect(Instant deadline, const AbortSignal& stop);
  [[nodiscard]] bool ask(std::uint32_t images, std::span<const WantedImage> wanted,
                         Instant deadline, const AbortSignal& stop);
  [[nodiscard]] bool send_whole(ByteSpan bytes, Instant deadline, const AbortSignal& stop);
  void give_up(const AbortSignal& stop);
  void wait_before_next_attempt();
  [[nodiscard]] bool receive(WantedImage& image, Instant deadline, const AbortSignal& stop);
  [[nodiscard]] bool wait(short events, Instant deadline, const AbortSignal& stop) const;
  [[nodiscard]] bool receive_whole(std::span<std::byte> into, Instant deadline,
                                   const AbortSignal& stop);

  const Endpoint host_;
  const StoreKey key_;
  UniqueFd fd_;
  Instant next_attempt_{};
  Duration retry_delay_ = kRetryFirst;
};

/// How long to wait for the answers of one host: twice what 99 of 100 took, also of those that were
/// waited for in vain, and between `least` and kMost. One thread.
class AnswerTimes {
 public:
  static constexpr Duration kLeast = milliseconds(200);
  static constexpr Duration kMost = seconds(1);

  explicit AnswerTimes(Duration least = kLeast) : least_(least) {}

  void add(Duration time);
  [[nodiscard]] Duration patience() const;

 private:
  static constexpr std::size_t kRemembered = 128;
  Duration least_;
  std::vector<Duration> times_;
  std::size_t next_ = 0;
};

}  // namespace mayfly::datasets
