#include "datasets/peer_stores.hpp"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "base/try_assign.hpp"

namespace mayfly::datasets {
namespace {

// Longest time between two views: the next one is known some milliseconds after the end of the
// first.
constexpr Duration kBetweenViews = milliseconds(100);
// Within this time the other hosts begin their next view and ask for this host's index.
constexpr Duration kNobodyAsks = seconds(5);
constexpr Duration kServeMost = seconds(120);

bool is_missing(const WantedImage& image) {
  return image.bytes.empty();
}

std::shared_ptr<StorePeer> find_store(const std::vector<std::shared_ptr<StorePeer>>& hosts,
                                      std::uint64_t store) {
  const auto found = std::ranges::find(hosts, store, &StorePeer::store);
  return found == hosts.end() ? nullptr : *found;
}

std::vector<std::uint64_t> stores_of(const std::vector<std::shared_ptr<StorePeer>>& hosts) {
  std::vector<std::uint64_t> stores(hosts.size());
  std::ranges::transform(hosts, stores.begin(), [](const auto& host) { return host->store(); });
  return stores;
}

/// The host that is asked for an image. The search begins at another host for each image, so that
/// hosts that keep the same images share the work; hosts that have left are asked last. Null if
/// there is no host besides `tried`.
StorePeer* keeper_of(const StorePeers& peers, std::uint64_t image, const StorePeer* tried) {
  for (const auto* hosts : {&peers.hosts, &peers.leavers}) {
    for (std::size_t k = 0; k < hosts->size(); ++k) {
      StorePeer& host = *(*hosts)[(image + k) % hosts->size()];
      if (&host != tried && !host.is_gone() && host.keeps(image)) {
        return &host;
      }
    }
  }
  return nullptr;
}

/// Fetches the wanted images for which `asks` names this host.
void fetch_some(StorePeer& host, const std::vector<StorePeer*>& asks, std::span<WantedImage> wanted,
                const AbortSignal& stop) {
  std::vector<WantedImage> asked;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (asks[i] == &host) {
      asked.push_back(std::move(wanted[i]));
    }
  }
  if (asked.empty()) {
    return;
  }
  host.fetch(asked, stop);
  auto next = asked.begin();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (asks[i] == &host) {
      wanted[i] = std::move(*next++);
    }
  }
}

}  // namespace

Result<std::shared_ptr<PeerStores>> PeerStores::start(std::shared_ptr<ImageStore> store,
                                                      std::vector<std::uint32_t> sizes,
                                                      const std::string& host, Duration patience) {
  TRY_ASSIGN(std::unique_ptr<StoreServer> server, StoreServer::start(*store, host));
  return std::make_shared<PeerStores>(std::move(store), std::move(sizes), std::move(server),
                                      patience);
}

PeerStores::PeerStores(std::shared_ptr<ImageStore> store, std::vector<std::uint32_t> sizes,
                       std::unique_ptr<StoreServer> server, Duration patience)
    : store_(std::move(store)),
      server_(std::move(server)),
      patience_(patience),
      copier_(store_, std::move(sizes)) {}

PeerStores::~PeerStores() {
  end_view(UINT64_MAX);
}

std::string PeerStores::address() const {
  return StorePeer::to_text({server_->endpoint(), store_->id()});
}

void PeerStores::begin_view(const StoreKey& key, const std::vector<std::string>& addresses) {
  auto peers = std::make_shared<StorePeers>();
  peers->key = key;
  server_->admit(key);
  store_->allow_giving_up(false);  // until the plans know which images the hosts of this view keep
  const std::lock_guard lock(mutex_);
  const StorePeers none;
  const StorePeers& before = peers_ != nullptr ? *peers_ : none;
  bool is_first = true;  // the address is the first one of its host
  for (const std::string& text : addresses) {
    std::optional<StorePeer::Address> address = StorePeer::parse(text);
    if (address && address->store == store_->id()) {
      peers->copies = peers->copies || (is_first && text == this->address());
      is_first = false;
    } else if (address && find_store(peers->hosts, address->store) == nullptr) {
      const auto same = find_store(before.hosts, address->store);
      peers->hosts.push_back(
          std::make_shared<StorePeer>(*std::move(address), key, patience_, same.get()));
    }
  }
  std::ranges::sort(peers->hosts, {}, [](const auto& host) { return host->store(); });
  for (const auto* hosts : {&before.hosts, &before.leavers}) {
    for (const auto& host : *hosts) {
      if (find_store(peers->hosts, host->store()) == nullptr && !host->is_gone()) {
        host->leave(stores_of(before.hosts));
        peers->leavers.push_back(host);
      }
    }
  }
  if (peers_ != nullptr) {
    peers_->over.raise();
  }
  peers_ = std::move(peers);
  copier_.begin_view(peers_);
  begun_.notify_all();
}

void PeerStores::end_view(std::uint64_t view) {
  const std::lock_guard lock(mutex_);
  if (peers_ != nullptr && peers_->key.view <= view) {
    peers_->over.raise();
  }
}

/// The peers of the present view, or of one that begins soon; null: there is none.
std::shared_ptr<StorePeers> PeerStores::current_peers() {
  std::unique_lock lock(mutex_);
  (void)begun_.wait_for(lock, kBetweenViews,
                        [this] { return peers_ == nullptr || !peers_->over.raised(); });
  return peers_ != nullptr && peers_->over.raised() ? nullptr : peers_;
}

void PeerStores::fetch(const SampleStream& stream, std::uint64_t position,
                       std::span<WantedImage> wanted) {
  copier_.note_position(stream, position);
  for (bool is_interrupted = true; is_interrupted && std::ranges::any_of(wanted, is_missing);) {
    const std::shared_ptr<StorePeers> peers = current_peers();
    if (peers == nullptr) {
      return;
    }
    fetch_from(*peers, stream.at(position).epoch, wanted);
    is_interrupted = peers->over.raised();
  }
}

void PeerStores::fetch_from(StorePeers& peers, std::uint64_t epoch, std::span<WantedImage> wanted) {
  for (const auto& host : peers.hosts) {
    host->update(epoch, store_->images(), peers.over);
  }
  std::vector<StorePeer*> tried(wanted.size(), nullptr);
  for (int attempt = 0; attempt < 2; ++attempt) {  // an image has up to two copies
    std::vector<StorePeer*> asks(wanted.size(), nullptr);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      asks[i] = is_missing(wanted[i]) ? keeper_of(peers, wanted[i].image, tried[i]) : nullptr;
    }
    for (const auto* hosts : {&peers.hosts, &peers.leavers}) {
      for (const auto& host : *hosts) {
        fetch_some(*host, asks, wanted, peers.over);
      }
    }
    tried = std::move(asks);
  }
}

bool PeerStores::is_kept(std::uint64_t image) {
  const std::lock_guard lock(mutex_);
  return peers_ != nullptr &&
         std::ranges::any_of(peers_->hosts, [&](const auto& host) { return host->keeps(image); });
}

void PeerStores::offer(std::uint64_t image, ByteSpan bytes) {
  std::shared_ptr<StorePeers> peers;
  {
    const std::lock_guard lock(mutex_);
    peers = peers_;
  }
  for (std::size_t k = 0; peers != nullptr && k < peers->hosts.size(); ++k) {
    if (peers->hosts[(image + k) % peers->hosts.size()]->offer(image, bytes, peers->over)) {
      return;
    }
  }
}

void PeerStores::serve_after_leaving() {
  // What is still being prepared, to no purpose, comes from the others as before.
  copier_.begin_view(nullptr);
  {
    const std::lock_guard lock(mutex_);
    if (peers_ == nullptr || peers_->hosts.empty() || store_->bytes_kept() == 0) {
      return;
    }
  }
  const Instant begun = monotonic_now();
  for (Instant now = begun;
       now - begun < kServeMost && now - std::max(begun, server_->last_answer()) < kNobodyAsks;
       now = monotonic_now()) {
    std::this_thread::sleep_for(milliseconds(50));
  }
}

}  // namespace mayfly::datasets
