#pragma once

// Fetches images from the stores of other hosts (datasets/store_protocol.hpp).

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

/// An image that a reader wants, and the result of fetching it.
struct WantedImage {
  std::uint64_t image = 0;
  std::uint64_t size = 0;   ///< in bytes, at least 1
  Bytes bytes;              ///< after StoreReader::fetch(): empty if it must be read from storage
  bool is_damaged = false;  ///< it arrived with another hash
};

/// A reader's connection to the store of one host. One thread.
class StoreReader {
 public:
  /// Connects with the first request. `host` is numeric.
  StoreReader(Endpoint host, const StoreKey& key);

  /// Asks for all images at once (or kStoreRequestMax at a time) and waits for them until the
  /// deadline, or until `stop` is raised (any thread). Never fails: an image that has not arrived
  /// completely and with its hash by then is left without bytes. Returns the number of images that
  /// have arrived. After a failure the connection is closed, and the host is not asked for
  /// kRetryFirst, and for twice as long after each further failure, up to kRetryMost. So a host
  /// that begins a view later is asked again soon, and a lost one costs at most one deadline per
  /// second.
  std::size_t fetch(std::span<WantedImage> wanted, Instant deadline, const AbortSignal& stop);

  /// The index of the host, for so many images; nothing if it has not answered by the deadline.
  /// Otherwise as fetch().
  [[nodiscard]] std::optional<StoreIndex> fetch_index(std::uint64_t images, Instant deadline,
                                                      const AbortSignal& stop);
  /// False after a failure.
  [[nodiscard]] bool is_connected() const { return fd_.valid(); }
  /// The next call asks the host even after a failure.
  void ask_at_once() { next_attempt_ = Instant(); }

  /// Sends an image that the host may keep. The reader does not learn whether it does. Otherwise as
  /// fetch().
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

/// How long to wait for the answers of one host: twice the time that 99 of 100 answers took,
/// including those that did not arrive, and between `least` and kMost. One thread.
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
