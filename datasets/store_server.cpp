#include "datasets/store_server.hpp"

#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <utility>

#include "base/check.hpp"
#include "base/net/sockets.hpp"
#include "base/thread_priority.hpp"
#include "base/try_assign.hpp"
#include "datasets/jpeg.hpp"

namespace mayfly::datasets {
namespace {

constexpr std::size_t kReadersMax = 256;
constexpr std::size_t kAskedMax = 4 * kStoreRequestMax;  // of one reader, before it takes answers
constexpr std::size_t kSendBytes = std::size_t{256} << 10;
constexpr int kServePollMs = 500;
// A reader says its first request as soon as it is connected.
constexpr Duration kFirstRequest = seconds(2);

std::uint64_t index_words(std::uint64_t images) {
  return (images + 63) / 64;
}

}  // namespace

// ---- the host's side

/// One reader.
class StoreServer::Connection {
 public:
  explicit Connection(UniqueFd fd)
      : who_(peer_name(fd.get())), fd_(std::move(fd)), since_(monotonic_now()) {}

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] const std::string& who() const { return who_; }
  [[nodiscard]] bool has_asked() const { return has_asked_; }
  [[nodiscard]] bool is_late(Instant now) const {
    return !has_asked_ && now - since_ > kFirstRequest;
  }
  [[nodiscard]] short events() const {
    const bool may_ask = asked_.size() < kAskedMax;
    return static_cast<short>((may_ask ? POLLIN : 0) | (answers() ? POLLOUT : 0));
  }

  /// False: this connection is over.
  [[nodiscard]] bool advance(const ImageStore& store, const StoreKey& admitted,
                             std::atomic<std::uint64_t>& served) {
    if (asked_.size() < kAskedMax && !receive(store, admitted)) {
      return false;
    }
    // Of a former view: its reader has gone on, or will connect again with the new key.
    return (!has_asked_ || key_ == admitted) && send(store, served);
  }

 private:
  [[nodiscard]] bool answers() const { return is_answering_ || !asked_.empty(); }

  bool receive(const ImageStore& store, const StoreKey& admitted) {
    std::array<std::byte, 8192> block;
    const Moved got = receive_some(fd_.get(), block.data(), block.size());
    received_.insert(received_.end(), block.begin(),
                     block.begin() + static_cast<std::ptrdiff_t>(got.bytes));
    while (received_.size() >= sizeof(StoreRequest)) {
      StoreRequest request;
      std::memcpy(&request, received_.data(), sizeof request);
      const bool asks_for_index = request.images == kStoreIndex;
      const std::uint32_t images = asks_for_index ? 0 : request.images;
      if (request.magic != kStoreMagic || images > kStoreRequestMax || admitted == StoreKey{} ||
          request.key != admitted) {
        return false;
      }
      key_ = request.key;
      has_asked_ = true;
      const std::size_t whole = sizeof request + images * sizeof(std::uint64_t);
      if (received_.size() < whole) {
        break;
      }
      if (asks_for_index) {
        asked_.push_back(kIndex);
      }
      for (std::size_t at = sizeof request; at < whole; at += sizeof(std::uint64_t)) {
        std::uint64_t image = 0;
        std::memcpy(&image, received_.data() + at, sizeof image);
        if (image >= store.images()) {
          return false;
        }
        asked_.push_back(image);
      }
      received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(whole));
    }
    return !got.closed;
  }

  bool send(const ImageStore& store, std::atomic<std::uint64_t>& served) {
    while (answers()) {
      if (!is_answering_) {
        begin_answer(store);
      }
      const ByteSpan head = std::as_bytes(std::span(&answer_, 1));
      const ByteSpan rest =
          sent_ < head.size() ? head.subspan(sent_) : bytes_.subspan(sent_ - head.size());
      const bool more = sent_ < head.size() && !bytes_.empty();
      const Moved moved =
          send_some(fd_.get(), rest.data(), std::min(rest.size(), kSendBytes), more);
      sent_ += moved.bytes;
      if (moved.closed) {
        return false;
      }
      if (moved.bytes == 0) {
        return true;  // poll() tells when the reader has taken some
      }
      if (sent_ == head.size() + bytes_.size()) {
        served += bytes_.size();
        is_answering_ = false;
      }
    }
    return true;
  }

  void begin_answer(const ImageStore& store) {
    ImageStore::Kept kept;
    if (asked_.front() == kIndex) {
      write_index(store);
      kept = {.bytes = std::as_bytes(std::span(index_)),
              .digest = digest_of(std::as_bytes(std::span(index_)))};
    } else {
      kept = store.kept(asked_.front());
    }
    answer_ = {.image = asked_.front(), .size = kept.bytes.size(), .digest = kept.digest};
    bytes_ = kept.bytes;
    sent_ = 0;
    is_answering_ = true;
    asked_.pop_front();
  }

  void write_index(const ImageStore& store) {
    index_.assign(index_words(store.images()), 0);
    for (std::uint64_t image = 0; image < store.images(); ++image) {
      index_[image / 64] |= std::uint64_t{store.kept(image).bytes.empty() ? 0U : 1U}
                            << (image % 64);
    }
  }

  static constexpr std::uint64_t kIndex = UINT64_MAX;  // in place of an image

  const std::string who_;
  UniqueFd fd_;
  Instant since_;
  StoreKey key_;
  bool has_asked_ = false;
  Bytes received_;
  std::deque<std::uint64_t> asked_;
  bool is_answering_ = false;
  StoreAnswer answer_;
  ByteSpan bytes_;
  std::vector<std::uint64_t> index_;
  std::size_t sent_ = 0;  // of answer and bytes
};

Result<std::unique_ptr<StoreServer>> StoreServer::start(const ImageStore& store,
                                                        const std::string& host) {
  TRY_ASSIGN(UniqueFd listener, listen_tcp({host, 0}));
  return std::unique_ptr<StoreServer>(new StoreServer(store, std::move(listener)));
}

StoreServer::StoreServer(const ImageStore& store, UniqueFd listener)
    : store_(store), listener_(std::move(listener)), thread_([this] { serve(); }) {}

StoreServer::~StoreServer() {
  stopping_ = true;
  wake_.notify();
  thread_.join();
}

Endpoint StoreServer::endpoint() const {
  return bound_endpoint(listener_.get());
}

void StoreServer::admit(const StoreKey& key) {
  {
    const std::lock_guard lock(mutex_);
    admitted_ = key;
  }
  wake_.notify();
}

StoreKey StoreServer::admitted() const {
  const std::lock_guard lock(mutex_);
  return admitted_;
}

/// False: there is no descriptor for the connections that wait.
bool StoreServer::accept_connections(Connections& connections) {
  const AcceptEnd end = accept_waiting(listener_.get(), kReadersMax, [&](UniqueFd fd) {
    if (connections.size() < kReadersMax) {
      connections.push_back(std::make_unique<Connection>(std::move(fd)));
    } else {
      log_.turned_away(peer_name(fd.get()), "too many readers at once");
    }
  });
  return end != AcceptEnd::kNoDescriptors;
}

void StoreServer::serve() {
  pthread_setname_np(pthread_self(), "store");
  run_with_low_priority();
  Connections connections;
  std::vector<pollfd> polled;
  bool may_accept = true;
  while (!stopping_) {
    polled = {{wake_.fd(), POLLIN, 0}, {listener_.get(), may_accept ? short{POLLIN} : short{0}, 0}};
    for (const auto& connection : connections) {
      polled.push_back({connection->fd(), connection->events(), 0});
    }
    (void)::poll(polled.data(), polled.size(),
                 may_accept ? kServePollMs : static_cast<int>(to_ms(kAcceptRetryDelay)));
    wake_.clear();
    const StoreKey key = admitted();
    const Instant now = monotonic_now();
    for (auto& connection : connections) {
      const bool goes_on = connection->advance(store_, key, bytes_served_);
      if (!goes_on || connection->is_late(now)) {
        if (!connection->has_asked()) {
          log_.turned_away(connection->who(), "it asked for nothing with the key of this view");
        }
        connection.reset();
      }
    }
    std::erase(connections, nullptr);
    may_accept = accept_connections(connections);
  }
}

// ---- the reader's side

StoreReader::StoreReader(Endpoint host, const StoreKey& key) : host_(std::move(host)), key_(key) {}

bool StoreReader::wait(short events, Instant deadline, const AbortSignal& stop) const {
  std::array<pollfd, 2> polled = {{{fd_.get(), events, 0}, {stop.fd(), POLLIN, 0}}};
  while (!stop.raised() && monotonic_now() < deadline) {
    if (::poll(polled.data(), polled.size(), poll_timeout_ms(deadline)) > 0 &&
        polled[0].revents != 0) {
      return true;
    }
  }
  return false;
}

bool StoreReader::connect(Instant deadline, const AbortSignal& stop) {
  if (fd_.valid()) {
    return true;
  }
  if (monotonic_now() < next_attempt_) {
    return false;
  }
  next_attempt_ = monotonic_now() + kRetryDelay;
  Result<UniqueFd> started = start_connect_tcp(host_);
  if (!started.ok() || !started.value().valid()) {
    return false;
  }
  fd_ = std::move(started).value();
  if (!wait(POLLOUT, deadline, stop) || connection_error(fd_.get()) != 0) {
    return false;
  }
  tune_stream(fd_.get());
  return true;
}

bool StoreReader::ask(std::uint32_t images, std::span<const WantedImage> wanted, Instant deadline,
                      const AbortSignal& stop) {
  const StoreRequest request{.magic = kStoreMagic, .key = key_, .images = images};
  Bytes message(sizeof request + wanted.size() * sizeof(std::uint64_t));
  std::memcpy(message.data(), &request, sizeof request);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    std::memcpy(message.data() + sizeof request + i * sizeof(std::uint64_t), &wanted[i].image,
                sizeof(std::uint64_t));
  }
  for (std::size_t sent = 0; sent < message.size();) {
    const Moved moved = send_some(fd_.get(), message.data() + sent, message.size() - sent);
    sent += moved.bytes;
    if (moved.closed || (moved.bytes == 0 && !wait(POLLOUT, deadline, stop))) {
      return false;
    }
  }
  return true;
}

bool StoreReader::receive_whole(std::span<std::byte> into, Instant deadline,
                                const AbortSignal& stop) {
  while (!into.empty()) {
    const Moved got = receive_some(fd_.get(), into.data(), into.size());
    into = into.subspan(got.bytes);
    if (!into.empty() && (got.closed || (got.bytes == 0 && !wait(POLLIN, deadline, stop)))) {
      return false;
    }
  }
  return true;
}

/// False: the connection is of no use any more.
bool StoreReader::receive(WantedImage& image, Instant deadline, const AbortSignal& stop) {
  StoreAnswer answer;
  if (!receive_whole(std::as_writable_bytes(std::span(&answer, 1)), deadline, stop)) {
    return false;
  }
  if (answer.image != image.image || (answer.size != 0 && answer.size != image.size)) {
    return false;  // not what was asked for: the other host has other files
  }
  if (answer.size == 0) {
    return true;
  }
  image.bytes.resize(image.size);
  if (!receive_whole(image.bytes, deadline, stop)) {
    image.bytes.clear();
    return false;
  }
  if (digest_of(image.bytes) != answer.digest) {
    image.bytes.clear();
    image.is_damaged = true;
  }
  return true;
}

std::size_t StoreReader::fetch(std::span<WantedImage> wanted, Instant deadline,
                               const AbortSignal& stop) {
  ENSURE(wanted.size() <= kStoreRequestMax, "a microbatch is one request");
  for (WantedImage& image : wanted) {
    ENSURE(image.size > 0 && image.size <= kJpegBytesMax, "an image has bytes");
    image.bytes.clear();
    image.is_damaged = false;
  }
  bool goes_on = connect(deadline, stop) &&
                 ask(static_cast<std::uint32_t>(wanted.size()), wanted, deadline, stop);
  for (std::size_t i = 0; i < wanted.size() && goes_on; ++i) {
    goes_on = receive(wanted[i], deadline, stop);
  }
  if (!goes_on) {
    give_up();
  }
  return static_cast<std::size_t>(
      std::ranges::count_if(wanted, [](const WantedImage& image) { return !image.bytes.empty(); }));
}

void StoreReader::give_up() {
  if (fd_.valid()) {
    fd_ = UniqueFd();  // what it would still send must not be taken for later answers
    next_attempt_ = monotonic_now() + kRetryDelay;
  }
}

std::vector<std::uint64_t> StoreReader::fetch_index(std::uint64_t images, Instant deadline,
                                                    const AbortSignal& stop) {
  std::vector<std::uint64_t> index(index_words(images));
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(index));
  StoreAnswer answer;
  const bool is_whole =
      connect(deadline, stop) && ask(kStoreIndex, {}, deadline, stop) &&
      receive_whole(std::as_writable_bytes(std::span(&answer, 1)), deadline, stop) &&
      answer.size == bytes.size() && receive_whole(bytes, deadline, stop) &&
      digest_of(bytes) == answer.digest;
  if (!is_whole) {
    give_up();
    index.clear();
  }
  return index;
}

void AnswerTimes::add(Duration time) {
  if (times_.size() < kRemembered) {
    times_.push_back(time);
  } else {
    times_[next_] = time;
    next_ = (next_ + 1) % kRemembered;
  }
}

Duration AnswerTimes::patience() const {
  if (times_.empty()) {
    return least_;
  }
  std::vector<Duration> sorted = times_;
  const std::size_t rank = (sorted.size() * 99 + 99) / 100 - 1;
  std::ranges::nth_element(sorted, sorted.begin() + static_cast<std::ptrdiff_t>(rank));
  return std::max(least_, std::min(kMost, 2 * sorted[rank]));
}

}  // namespace mayfly::datasets
