#pragma once

// How a host asks another one for images of its store (ADR 33).
//
//   reader -> host   StoreRequest, then the numbers of its images, a microbatch at once
//   host -> reader   for each in turn a StoreAnswer, then the bytes; size 0: it does not have it
//
// or, with kStoreIndex in place of the number of images, what the host keeps: a StoreAnswer, then
// the words of a StoreIndex: two bits for each image of the set, and the room that is left; or,
// with kStoreOffer, an image for which the reader has no room: a StoreAnswer and the bytes, which
// the host keeps if it has room, and does not answer.
//
// A request carries the key of the reader's view, so a host answers only members of the view that
// it is in, or was in before, because not all begin a view at the same time. A request from a later
// view waits for a moment; any other connection is closed. The answer has the hash that the image
// had when it came from storage, and the reader compares it with what has arrived. Requests may
// follow each other before they are answered. Bytes are not encrypted, like gradients.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "base/net/accept.hpp"
#include "base/net/addresses.hpp"
#include "base/net/wake_up.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "datasets/core/store_plan.hpp"
#include "datasets/image_store.hpp"

namespace mayfly::datasets {

/// The most images of one request.
inline constexpr std::uint32_t kStoreRequestMax = 4096;

/// In place of a number of images.
inline constexpr std::uint32_t kStoreIndex = UINT32_MAX;
inline constexpr std::uint32_t kStoreOffer = UINT32_MAX - 1;

/// Who may ask: the members of a view.
struct StoreKey {
  std::uint64_t view = 0;
  std::uint64_t key = 0;
  friend bool operator==(const StoreKey&, const StoreKey&) = default;
};

struct StoreRequest {
  std::uint64_t magic = 0;
  StoreKey key;
  std::uint32_t images = 0;  ///< at most kStoreRequestMax, or kStoreIndex, or kStoreOffer
  std::uint32_t reserved = 0;
};
static_assert(sizeof(StoreRequest) == 32);

struct StoreAnswer {
  std::uint64_t image = 0;
  std::uint64_t size = 0;  ///< of the bytes that follow
  Digest digest;           ///< of what storage gave
};
static_assert(sizeof(StoreAnswer) == 32);

inline constexpr std::uint64_t kStoreMagic = 0x3130'6572'6f74'736dULL;  // "mstore01"

/// Serves the images of a store to readers of other hosts, on a thread of its own with low
/// priority: training goes first.
class StoreServer {
 public:
  /// Listens on a free port of an interface (name or address). Until admit() nobody is answered.
  /// kIo, kInvalidInput. The store outlives the server.
  [[nodiscard]] static Result<std::unique_ptr<StoreServer>> start(ImageStore& store,
                                                                  const std::string& host);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  /// Where readers connect; numeric.
  [[nodiscard]] Endpoint endpoint() const;
  /// From now on answers the members of this view, and of the one that was admitted before. Any
  /// thread.
  void admit(const StoreKey& key);
  /// When somebody was last answered, or the start. Any thread.
  [[nodiscard]] Instant last_answer() const { return last_answer_; }
  /// Connections now. Any thread.
  [[nodiscard]] std::size_t readers() const { return readers_; }

 private:
  class Connection;
  struct Admitted {
    StoreKey now;
    StoreKey before;
    [[nodiscard]] bool has(const StoreKey& key) const {
      return key != StoreKey{} && (key == now || key == before);
    }
  };
  using Connections = std::vector<std::unique_ptr<Connection>>;

  StoreServer(ImageStore& store, UniqueFd listener);
  void serve();
  [[nodiscard]] Admitted admitted() const;
  [[nodiscard]] bool accept_connections(Connections& connections, const Admitted& admitted);
  void advance(std::unique_ptr<Connection>& connection, const Admitted& admitted);
  void close_excess(Connections& connections);

  ImageStore& store_;
  const UniqueFd listener_;
  WakeUp wake_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::size_t> readers_{0};
  std::atomic<Instant> last_answer_ = monotonic_now();
  mutable std::mutex mutex_;
  Admitted admitted_;  // guarded by mutex_
  RejectionLog log_{"image port"};
  std::thread thread_;  // the last member: it uses the others
};

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
  /// failure the connection is closed, and nobody is asked for kRetryFirst, and twice as long each
  /// further time, up to kRetryMost: a host that begins a view later is asked again soon, and one
  /// that is gone costs one deadline a second.
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
