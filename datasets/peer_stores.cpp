#include "datasets/peer_stores.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/try_assign.hpp"

namespace mayfly::datasets {
namespace {

// What hosts keep is asked again after so long, for what was not kept yet when an epoch was begun.
constexpr Duration kIndexAge = seconds(5);

struct PeerAddress {
  Endpoint endpoint;
  std::uint64_t store = 0;
};

std::optional<PeerAddress> parse_peer_address(const std::string& text) {
  const std::size_t slash = text.rfind('/');
  if (slash == std::string::npos) {
    return std::nullopt;
  }
  PeerAddress address;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + slash + 1, end, address.store, 16);
  Result<Endpoint> endpoint = parse_endpoint(text.substr(0, slash));
  if (read.ec != std::errc{} || read.ptr != end || !endpoint.ok()) {
    return std::nullopt;
  }
  address.endpoint = std::move(endpoint).value();
  return address;
}

}  // namespace

/// One other host.
class PeerStores::Peer {
 public:
  Peer(PeerAddress address, const StoreKey& key, Duration patience)
      : address_(std::move(address)), key_(key), times_(patience) {}

  [[nodiscard]] std::uint64_t store() const { return address_.store; }

  /// Asks what it keeps, if that is not known for this epoch.
  void update(std::uint64_t epoch, std::uint64_t images, const AbortSignal& stop) {
    const std::lock_guard lock(
        asking_);  // of several threads one asks, and the others want to know
    const Instant now = monotonic_now();
    if (is_known_ && epoch_ == epoch && now - asked_ < kIndexAge) {
      return;
    }
    is_known_ = true;
    epoch_ = epoch;
    asked_ = now;
    std::unique_ptr<StoreReader> reader = take_reader();
    std::vector<std::uint64_t> index = reader->fetch_index(images, now + patience(), stop);
    give_back(std::move(reader));
    is_known_ = !index.empty();  // else it may not be in this view yet, and is asked again soon
    const std::lock_guard guard(mutex_);
    index_ = std::move(index);
  }

  [[nodiscard]] bool keeps(std::uint64_t image) const {
    const std::lock_guard lock(mutex_);
    return image / 64 < index_.size() && (index_[image / 64] >> (image % 64) & 1) != 0;
  }

  void fetch(std::span<WantedImage> wanted, const AbortSignal& stop) {
    const Instant begun = monotonic_now();
    std::unique_ptr<StoreReader> reader = take_reader();
    (void)reader->fetch(wanted, begun + patience(), stop);
    give_back(std::move(reader));
    const std::lock_guard lock(mutex_);
    times_.add(monotonic_now() - begun);
  }

 private:
  [[nodiscard]] Duration patience() const {
    const std::lock_guard lock(mutex_);
    return times_.patience();
  }
  /// One for each thread that fetches at the same time.
  std::unique_ptr<StoreReader> take_reader() {
    const std::lock_guard lock(mutex_);
    if (readers_.empty()) {
      return std::make_unique<StoreReader>(address_.endpoint, key_);
    }
    std::unique_ptr<StoreReader> reader = std::move(readers_.back());
    readers_.pop_back();
    return reader;
  }
  void give_back(std::unique_ptr<StoreReader> reader) {
    const std::lock_guard lock(mutex_);
    readers_.push_back(std::move(reader));
  }

  const PeerAddress address_;
  const StoreKey key_;
  std::mutex asking_;  // guards the next three
  bool is_known_ = false;
  std::uint64_t epoch_ = 0;
  Instant asked_;
  mutable std::mutex mutex_;  // guards everything below
  std::vector<std::uint64_t> index_;
  std::vector<std::unique_ptr<StoreReader>> readers_;
  AnswerTimes times_;
};

struct PeerStores::PeersOfView {
  StoreKey key;
  AbortSignal over;
  std::vector<std::unique_ptr<Peer>> hosts;
};

Result<std::shared_ptr<PeerStores>> PeerStores::start(std::shared_ptr<ImageStore> store,
                                                      const std::string& host, Duration patience) {
  TRY_ASSIGN(std::unique_ptr<StoreServer> server, StoreServer::start(*store, host));
  return std::make_shared<PeerStores>(std::move(store), std::move(server), patience);
}

PeerStores::PeerStores(std::shared_ptr<ImageStore> store, std::unique_ptr<StoreServer> server,
                       Duration patience)
    : store_(std::move(store)), server_(std::move(server)), patience_(patience) {}

PeerStores::~PeerStores() {
  end_view(UINT64_MAX);
}

std::string PeerStores::address() const {
  return fmt::format("{}/{:x}", to_string(server_->endpoint()), store_->id());
}

void PeerStores::begin_view(const StoreKey& key, const std::vector<std::string>& addresses) {
  auto peers = std::make_shared<PeersOfView>();
  peers->key = key;
  for (const std::string& text : addresses) {
    std::optional<PeerAddress> address = parse_peer_address(text);
    const auto is_same = [&](const auto& host) { return host->store() == address->store; };
    if (address && address->store != store_->id() && std::ranges::none_of(peers->hosts, is_same)) {
      peers->hosts.push_back(std::make_unique<Peer>(*std::move(address), key, patience_));
    }
  }
  end_view(UINT64_MAX);
  server_->admit(key);
  const std::lock_guard lock(mutex_);
  peers_ = std::move(peers);
}

void PeerStores::end_view(std::uint64_t view) {
  const std::lock_guard lock(mutex_);
  if (peers_ != nullptr && peers_->key.view <= view) {
    peers_->over.raise();
  }
}

void PeerStores::fetch(std::uint64_t epoch, std::span<WantedImage> wanted) {
  std::shared_ptr<PeersOfView> peers;
  {
    const std::lock_guard lock(mutex_);
    peers = peers_;
  }
  if (peers == nullptr || peers->over.raised() || wanted.empty()) {
    return;
  }
  for (const auto& host : peers->hosts) {
    host->update(epoch, store_->images(), peers->over);
  }
  // Beginning with another host for each image, so that those that keep the same share the work.
  const std::size_t count = peers->hosts.size();
  std::vector<std::size_t> owner(wanted.size(), count);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    for (std::size_t k = 0; k < count && owner[i] == count; ++k) {
      const std::size_t host = (wanted[i].image + k) % count;
      owner[i] = peers->hosts[host]->keeps(wanted[i].image) ? host : count;
    }
  }
  for (std::size_t host = 0; host < count; ++host) {
    std::vector<WantedImage> asked;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (owner[i] == host) {
        asked.push_back(std::move(wanted[i]));
      }
    }
    if (asked.empty()) {
      continue;
    }
    peers->hosts[host]->fetch(asked, peers->over);
    auto next = asked.begin();
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (owner[i] == host) {
        wanted[i] = std::move(*next++);
      }
    }
  }
}

}  // namespace mayfly::datasets
