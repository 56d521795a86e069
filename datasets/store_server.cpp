#include "datasets/store_server.hpp"

#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <utility>

#include "base/bytes.hpp"
#include "base/digest.hpp"
#include "base/net/sockets.hpp"
#include "base/thread_priority.hpp"
#include "base/try_assign.hpp"
#include "datasets/jpeg.hpp"

namespace mayfly::datasets {
namespace {

constexpr std::size_t kReadersMax = 512;   // readers that have asked with the key of a view
constexpr std::size_t kStrangersMax = 64;  // all other connections
// Images that one reader may request before it reads answers.
constexpr std::size_t kRequestedMax = 4 * kStoreRequestMax;
constexpr std::size_t kWaitingBytesMax = std::size_t{64} << 10;  // of a reader in a later view
constexpr std::size_t kSendBytes = std::size_t{256} << 10;
constexpr int kServePollMs = 500;
// A reader sends its first request as soon as it is connected.
constexpr Duration kFirstRequest = seconds(2);

}  // namespace

/// One reader.
class StoreServer::Connection {
 public:
  explicit Connection(UniqueFd fd)
      : peer_(peer_name(fd.get())), fd_(std::move(fd)), since_(monotonic_now()) {}

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] const std::string& peer() const { return peer_; }
  [[nodiscard]] bool has_requested() const { return has_requested_; }
  /// When the last answer was begun, or nothing.
  [[nodiscard]] Instant last_answer() const { return last_answer_; }
  [[nodiscard]] bool is_late(Instant now) const {
    return !has_requested_ && now - since_ > kFirstRequest;
  }
  [[nodiscard]] short events() const {
    const bool may_ask = requested_.size() < kRequestedMax;
    return static_cast<short>((may_ask ? POLLIN : 0) | (answers() ? POLLOUT : 0));
  }

  /// False: this connection is over.
  [[nodiscard]] bool advance(ImageStore& store, const Admitted& admitted) {
    if (requested_.size() < kRequestedMax && !receive(store, admitted)) {
      return false;
    }
    // A connection of a former view: its reader has closed it, or will connect again with the new
    // key.
    return (!has_requested_ || admitted.has(key_)) && send(store);
  }

 private:
  [[nodiscard]] bool answers() const { return is_answering_ || !requested_.empty(); }

  bool receive(ImageStore& store, const Admitted& admitted) {
    std::array<std::byte, 65536> block;
    const Moved got = receive_some(fd_.get(), block.data(), block.size());
    received_.insert(received_.end(), block.begin(),
                     block.begin() + static_cast<std::ptrdiff_t>(got.bytes));
    while (received_.size() >= sizeof(StoreRequest)) {
      StoreRequest request;
      std::memcpy(&request, received_.data(), sizeof request);
      const std::size_t whole = message_bytes(request);
      if (whole == 0) {
        return false;
      }
      if (!admitted.has(request.key)) {
        // A request of a later view is handled when this process begins that view.
        return request.key.view > admitted.now.view && received_.size() <= kWaitingBytesMax &&
               !got.closed;
      }
      key_ = request.key;
      has_requested_ = true;
      if (received_.size() < whole) {
        break;
      }
      const ByteSpan rest = ByteSpan(received_).first(whole).subspan(sizeof request);
      if (request.images == kStoreIndex) {
        requested_.push_back(kIndex);
      } else if (request.images == kStoreOffer ? !take_offer(store, rest)
                                               : !take_questions(store, rest)) {
        return false;
      }
      received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(whole));
    }
    return !got.closed;
  }

  /// The size of the message that begins with this request, as far as it is known; 0: the request
  /// is not valid.
  [[nodiscard]] std::size_t message_bytes(const StoreRequest& request) const {
    std::size_t bytes = sizeof request;
    if (request.images == kStoreOffer) {
      bytes += sizeof(StoreAnswer);
      const std::uint64_t size =
          received_.size() < bytes ? 0 : head_of(ByteSpan(received_).subspan(sizeof request)).size;
      return request.magic == kStoreMagic && size <= kJpegBytesMax ? bytes + size : 0;
    }
    const std::uint32_t images = request.images == kStoreIndex ? 0 : request.images;
    return request.magic == kStoreMagic && images <= kStoreRequestMax
               ? bytes + images * sizeof(std::uint64_t)
               : 0;
  }

  static StoreAnswer head_of(ByteSpan offer) {
    StoreAnswer head;
    std::memcpy(&head, offer.data(), sizeof head);
    return head;
  }

  static bool take_offer(ImageStore& store, ByteSpan offer) {
    const StoreAnswer head = head_of(offer);
    const ByteSpan bytes = offer.subspan(sizeof head);
    if (head.image >= store.images() || bytes.empty()) {
      return false;
    }
    if (digest_of(bytes) == head.digest) {
      (void)store.keep(head.image, bytes);
    }
    return true;
  }

  bool take_questions(const ImageStore& store, ByteSpan questions) {
    for (; !questions.empty(); questions = questions.subspan(sizeof(std::uint64_t))) {
      std::uint64_t image = 0;
      std::memcpy(&image, questions.data(), sizeof image);
      if (image >= store.images()) {
        return false;
      }
      requested_.push_back(image);
    }
    return true;
  }

  bool send(const ImageStore& store) {
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
        return true;  // poll() reports when there is room to send again
      }
      if (sent_ == head.size() + bytes_.size()) {
        is_answering_ = false;
      }
    }
    return true;
  }

  void begin_answer(const ImageStore& store) {
    last_answer_ = monotonic_now();
    ImageStore::Kept kept;
    if (requested_.front() == kIndex) {
      index_ = words_of(store.index());
      kept = {.bytes = std::as_bytes(std::span(index_)),
              .digest = digest_of(std::as_bytes(std::span(index_)))};
    } else {
      kept = store.kept(requested_.front(), copy_);
    }
    answer_ = {.image = requested_.front(), .size = kept.bytes.size(), .digest = kept.digest};
    bytes_ = kept.bytes;
    sent_ = 0;
    is_answering_ = true;
    requested_.pop_front();
  }

  static constexpr std::uint64_t kIndex = UINT64_MAX;  // in place of an image

  const std::string peer_;
  UniqueFd fd_;
  Instant since_;
  StoreKey key_;
  bool has_requested_ = false;
  Bytes received_;
  std::deque<std::uint64_t> requested_;
  bool is_answering_ = false;
  Instant last_answer_;
  StoreAnswer answer_;
  ByteSpan bytes_;
  Bytes copy_;
  std::vector<std::uint64_t> index_;
  std::size_t sent_ = 0;  // bytes sent of the answer and the image
};

Result<std::unique_ptr<StoreServer>> StoreServer::start(ImageStore& store,
                                                        const std::string& host) {
  TRY_ASSIGN(UniqueFd listener, listen_tcp({host, 0}));
  return std::unique_ptr<StoreServer>(new StoreServer(store, std::move(listener)));
}

StoreServer::StoreServer(ImageStore& store, UniqueFd listener)
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
    admitted_ = {.now = key, .before = admitted_.now};
  }
  wake_.notify();
}

StoreServer::Admitted StoreServer::admitted() const {
  const std::lock_guard lock(mutex_);
  return admitted_;
}

/// False: the process has no descriptor for the waiting connections.
bool StoreServer::accept_connections(Connections& connections, const Admitted& admitted) {
  const AcceptEnd end = accept_waiting(listener_.get(), kStrangersMax, [&](UniqueFd fd) {
    connections.push_back(std::make_unique<Connection>(std::move(fd)));
    advance(connections.back(), admitted);  // a connection with a valid request is no stranger
  });
  return end != AcceptEnd::kNoDescriptors;
}

/// The connection is null if it is over.
void StoreServer::advance(std::unique_ptr<Connection>& connection, const Admitted& admitted) {
  const bool goes_on = connection->advance(store_, admitted);
  last_answer_ = std::max(last_answer_.load(), connection->last_answer());
  if (goes_on && !connection->is_late(monotonic_now())) {
    return;
  }
  if (!connection->has_requested()) {
    log_.turned_away(connection->peer(), "it sent no request with the key of this view");
  }
  connection.reset();
}

/// Closes the oldest strangers, so that they cannot keep readers from connecting.
void StoreServer::close_excess(Connections& connections) {
  const auto asked = static_cast<std::size_t>(
      std::ranges::count_if(connections, [](const auto& one) { return one->has_requested(); }));
  std::size_t strangers = connections.size() - asked;
  std::size_t readers = 0;
  for (auto& connection : connections) {
    const bool has_requested = connection->has_requested();
    if (has_requested ? ++readers > kReadersMax : strangers > kStrangersMax) {
      strangers -= has_requested ? 0 : 1;
      log_.turned_away(connection->peer(), "too many readers at once");
      connection.reset();
    }
  }
  std::erase(connections, nullptr);
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
    const Admitted admitted = this->admitted();
    for (auto& connection : connections) {
      advance(connection, admitted);
    }
    may_accept = accept_connections(connections, admitted);
    std::erase(connections, nullptr);
    close_excess(connections);
    readers_ = connections.size();
  }
}

}  // namespace mayfly::datasets
