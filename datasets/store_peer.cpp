#include "datasets/store_peer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

namespace mayfly::datasets {
namespace {

// An index is requested again after this time, because hosts may keep further images after the
// epoch began. At first the time is short, because some hosts still read the last images of the
// previous epoch.
constexpr Duration kIndexAgeLeast = milliseconds(50);
constexpr Duration kIndexAgeMost = seconds(5);

}  // namespace

std::optional<StorePeer::Address> StorePeer::parse(const std::string& text) {
  const std::size_t slash = text.rfind('/');
  if (slash == std::string::npos) {
    return std::nullopt;
  }
  Address address;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + slash + 1, end, address.store, 16);
  Result<Endpoint> endpoint = parse_endpoint(text.substr(0, slash));
  if (read.ec != std::errc{} || read.ptr != end || !endpoint.ok()) {
    return std::nullopt;
  }
  address.endpoint = std::move(endpoint).value();
  return address;
}

std::string StorePeer::to_text(const Address& address) {
  return fmt::format("{}/{:x}", to_string(address.endpoint), address.store);
}

/// A connection that no other thread uses; none if all were in use until the deadline.
class StorePeer::Reader {
 public:
  Reader(StorePeer& peer, Instant deadline) : peer_(peer) {
    const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline.ns)};
    std::unique_lock lock(peer.mutex_);
    peer.returned_.wait_until(
        lock, until, [&] { return !peer.readers_.empty() || peer.readers_made_ < kConnections; });
    if (!peer.readers_.empty()) {
      reader_ = std::move(peer.readers_.back());
      peer.readers_.pop_back();
    } else if (peer.readers_made_ < kConnections) {
      reader_ = std::make_unique<StoreReader>(peer.address_.endpoint, peer.key_);
      peer.readers_made_ += 1;
    }
  }
  ~Reader() {
    if (reader_ != nullptr) {
      const std::lock_guard lock(peer_.mutex_);
      peer_.readers_.push_back(std::move(reader_));
      peer_.returned_.notify_one();
    }
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  explicit operator bool() const { return reader_ != nullptr; }
  StoreReader* operator->() const { return reader_.get(); }

 private:
  StorePeer& peer_;
  std::unique_ptr<StoreReader> reader_;
};

StorePeer::StorePeer(Address address, const StoreKey& key, Duration patience,
                     const StorePeer* before)
    : address_(std::move(address)), key_(key), times_(patience) {
  if (before != nullptr) {
    const std::lock_guard lock(before->mutex_);
    index_ = before->index_;
    times_ = before->times_;
  }
}

bool StorePeer::keeps(std::uint64_t image) const {
  const std::lock_guard lock(mutex_);
  return index_.keeps(image);
}

void StorePeer::leave(std::vector<std::uint64_t> was_with) {
  if (!has_left_) {
    was_with_ = std::move(was_with);
    has_left_ = true;
  }
}

bool StorePeer::is_known_to(std::uint64_t store) const {
  return std::ranges::find(was_with_, store) != was_with_.end();
}

void StorePeer::update(std::uint64_t epoch, std::uint64_t images, const AbortSignal& stop) {
  const std::lock_guard lock(request_mutex_);  // one thread asks, and others wait for its answer
  const Instant now = monotonic_now();
  if (epoch_ != epoch) {
    is_known_ = false;
    epoch_ = epoch;
    epoch_begun_ = now;
  }
  const Duration age_most = std::clamp(requested_at_ - epoch_begun_, kIndexAgeLeast, kIndexAgeMost);
  if (is_known_ && now - requested_at_ < age_most) {
    return;
  }
  requested_at_ = now;
  Duration patience{};
  {
    const std::lock_guard guard(mutex_);
    // A host that joins may enter the view earlier than other hosts.
    patience = std::max(times_.patience(), index_.kept.empty() ? AnswerTimes::kMost : Duration());
  }
  std::optional<StoreIndex> index;
  if (const Reader reader(*this, now + patience); reader) {
    index = reader->fetch_index(images, now + patience, stop);
  }
  is_known_ = index.has_value();  // if false, the host is asked again soon
  if (index) {
    learn(*std::move(index), now);
  }
}

/// The answers to two questions that were asked at the same time may arrive in any order.
void StorePeer::learn(StoreIndex index, Instant requested_at) {
  const std::lock_guard lock(mutex_);
  if (requested_at >= index_requested_at_) {
    index_ = std::move(index);
    index_requested_at_ = requested_at;
  }
}

void StorePeer::fetch(std::span<WantedImage> wanted, const AbortSignal& stop) {
  const Instant begun = monotonic_now();
  Duration patience{};
  {
    const std::lock_guard lock(mutex_);
    patience = times_.patience();
  }
  bool has_failed = false;
  if (const Reader reader(*this, begun + patience); reader) {
    (void)reader->fetch(wanted, begun + patience, stop);
    has_failed = !reader->is_connected();
  }
  const Instant now = monotonic_now();
  std::uint64_t images = 0;
  {
    const std::lock_guard lock(mutex_);
    times_.add(now - begun);
    has_failed = has_failed && now - last_failure_ > AnswerTimes::kMost;
    last_failure_ = has_failed ? now : last_failure_;
    images = 64 * index_.kept.size();
  }
  if (has_failed && has_left_) {  // it may be gone; no thread should wait in vain again
    (void)ask(images, stop);
  }
}

bool StorePeer::offer(std::uint64_t image, ByteSpan bytes, const AbortSignal& stop) {
  Duration patience{};
  {
    const std::lock_guard lock(mutex_);
    if (index_.free + index_.spare < bytes.size()) {
      return false;
    }
    // An estimate, until the host reports its free room.
    const std::uint64_t from_free = std::min<std::uint64_t>(index_.free, bytes.size());
    index_.free -= from_free;
    index_.spare -= bytes.size() - from_free;
    patience = times_.patience();
  }
  const Instant deadline = monotonic_now() + patience;
  if (const Reader reader(*this, deadline); reader) {
    reader->offer(image, bytes, deadline, stop);
  }
  return true;
}

std::optional<StoreIndex> StorePeer::ask(std::uint64_t images, const AbortSignal& stop) {
  const Instant begun = monotonic_now();
  const Instant deadline = begun + AnswerTimes::kMost;
  const Reader reader(*this, deadline);
  std::optional<StoreIndex> index;
  // An old connection may have been closed, so another one is tried.
  for (int attempt = 0; attempt < 2 && reader && !index; ++attempt) {
    reader->ask_at_once();
    index = reader->fetch_index(images, deadline, stop);
  }
  if (index) {
    learn(*index, begun);
  } else if (has_left_ && reader && !stop.raised()) {
    is_gone_ = true;
  }
  return index;
}

bool StorePeer::fetch_in_background(std::span<WantedImage> wanted, const AbortSignal& stop) {
  const Instant deadline = monotonic_now() + AnswerTimes::kMost;
  const Reader reader(*this, deadline);
  if (reader) {
    (void)reader->fetch(wanted, deadline, stop);
  }
  return static_cast<bool>(reader);
}

}  // namespace mayfly::datasets
