#include "datasets/store_copier.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.hpp"
#include "base/log.hpp"
#include "base/thread_priority.hpp"

namespace mayfly::datasets {
namespace {

// Limits of one request; its answer arrives long before a time-out, even on a slow network.
constexpr std::uint64_t kRequestBytes = std::uint64_t{1} << 20;
constexpr std::size_t kRequestImages = 256;
// Limit of one plan; after so many bytes all hosts are asked again for their contents.
constexpr std::uint64_t kPlanBytes = std::uint64_t{64} << 20;
// Multiple of the working time for which the thread rests.
constexpr int kRest = 7;
constexpr int kRestFromLeaver = 1;
// The least time before a host is asked again if it did not answer, or other hosts copy from it.
constexpr Duration kRetry = milliseconds(200);
// After so many failures an image is left out for the rest of the view: it is damaged, or its
// transfer is too slow.
constexpr int kFailuresMost = 2;
constexpr Duration kUntilNextView = seconds(3600);
// Between two plans without anything to copy.
constexpr Duration kPause = seconds(2);

std::vector<const StoreIndex*> pointers_to(const std::vector<StoreIndex>& all) {
  std::vector<const StoreIndex*> to(all.size());
  std::ranges::transform(all, to.begin(), [](const StoreIndex& index) { return &index; });
  return to;
}

}  // namespace

StoreCopier::StoreCopier(std::shared_ptr<ImageStore> store, std::vector<std::uint32_t> sizes)
    : store_(std::move(store)), sizes_(std::move(sizes)), thread_([this] { run(); }) {
  ENSURE(sizes_.size() == store_->images(), "each image has a size");
}

StoreCopier::~StoreCopier() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StoreCopier::begin_view(std::shared_ptr<StorePeers> peers) {
  {
    const std::lock_guard lock(mutex_);
    peers_ = std::move(peers);
  }
  changed_.notify_all();
}

void StoreCopier::note_position(const SampleStream& stream, std::uint64_t position) {
  const std::lock_guard lock(mutex_);
  stream_ = stream;
  position_ = position;
}

void StoreCopier::run() {
  pthread_setname_np(pthread_self(), "store-copy");
  run_with_low_priority();
  std::shared_ptr<StorePeers> peers;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || (peers_ != nullptr && peers_ != peers); });
      if (stopping_) {
        return;
      }
      peers = peers_;
    }
    failures_.clear();
    while (rest(*peers, copy_some(*peers))) {
    }
  }
}

/// False: this view is over.
bool StoreCopier::rest(const StorePeers& peers, Duration time) {
  std::unique_lock lock(mutex_);
  const auto is_over = [&] { return stopping_ || peers_.get() != &peers || peers.over.raised(); };
  (void)changed_.wait_for(lock, time, is_over);
  return !is_over();
}

/// Returns how long to rest before there may be more to copy.
Duration StoreCopier::copy_some(StorePeers& peers) {
  Instant begun = monotonic_now();
  const std::optional<Round> round = make_plan(peers);
  if (!round) {
    return std::max(kRetry, kRestFromLeaver * (monotonic_now() - begun));
  }
  if (!peers.copies) {
    return kUntilNextView;
  }
  std::span<const StorePull> left(round->plan.pulls);
  if (left.empty()) {
    log_copied();
    const Duration used = monotonic_now() - begun;
    return round->plan.needs_leavers ? std::max(kRetry, kRestFromLeaver * used)
                                     : std::max(kPause, kRest * used);
  }
  const int rest_per_work = left.front().is_second ? kRest : kRestFromLeaver;
  while (!left.empty()) {
    std::uint64_t bytes = 0;
    std::size_t count = 0;
    while (count < std::min(left.size(), kRequestImages) && bytes < kRequestBytes) {
      bytes += sizes_[left[count++].item];
    }
    const std::uint64_t kept = pull(*round, left.first(count), peers.over);
    if (kept == 0) {
      return std::max(kRetry, rest_per_work * (monotonic_now() - begun));
    }
    copied_ += kept;
    left = left.subspan(count);
    if (!rest(peers, rest_per_work * (monotonic_now() - begun))) {
      break;
    }
    begun = monotonic_now();
  }
  return {};
}

void StoreCopier::log_copied() {
  if (copied_ > 0) {
    log::info(fmt::format("{} images have been copied from other hosts to this one, {:.3g} GiB",
                          copied_, static_cast<double>(copied_bytes_) / 0x1p30));
  }
  copied_ = 0;
  copied_bytes_ = 0;
}

/// Nothing: some host has not sent its index.
std::optional<StoreCopier::Round> StoreCopier::make_plan(StorePeers& peers) {
  Round round;
  std::vector<StoreIndex> of_leavers;
  for (const auto& leaver : peers.leavers) {
    std::optional<StoreIndex> index;
    if (!leaver->is_gone()) {
      index = leaver->ask(store_->images(), peers.over);
    }
    if (index) {
      round.leavers.push_back(leaver);
      of_leavers.push_back(*std::move(index));
    }
  }
  if (!peers.copies) {
    return round;
  }
  std::vector<StoreIndex> of_hosts;
  std::size_t self = 0;
  for (const auto& host : peers.hosts) {
    std::optional<StoreIndex> index = host->ask(store_->images(), peers.over);
    if (!index) {
      return std::nullopt;
    }
    of_hosts.push_back(*std::move(index));
    self += host->store() < store_->id() ? 1 : 0;
  }
  of_hosts.insert(of_hosts.begin() + static_cast<std::ptrdiff_t>(self), store_->index());
  round.hosts = peers.hosts;
  round.hosts.insert(round.hosts.begin() + static_cast<std::ptrdiff_t>(self), nullptr);
  round.plan = plan_with(round, of_hosts, of_leavers);
  std::erase_if(round.plan.pulls, [&](const StorePull& pull) {
    const auto found = failures_.find(pull.item);
    return found != failures_.end() && found->second >= kFailuresMost;
  });
  for (const std::uint64_t image : round.plan.first) {
    store_->keep_for_good(image);
  }
  store_->allow_giving_up(!peers.over.raised());
  if (!round.plan.needs_leavers) {
    for (const auto& leaver : round.leavers) {
      leaver->mark_gone();
    }
  }
  return round;
}

StorePlan StoreCopier::plan_with(const Round& round, const std::vector<StoreIndex>& of_hosts,
                                 const std::vector<StoreIndex>& of_leavers) {
  std::optional<SampleStream> stream;
  std::uint64_t position = 0;
  {
    const std::lock_guard lock(mutex_);
    stream = stream_;
    position = position_;
  }
  const std::vector<const StoreIndex*> hosts = pointers_to(of_hosts);
  const std::vector<const StoreIndex*> leavers = pointers_to(of_leavers);
  const auto next_use = [&](std::uint64_t item) {
    return stream ? stream->next_use(position, item) : item;
  };
  const auto reaches = [&](std::size_t host, std::size_t leaver) {
    const StorePeer* const other = round.hosts[host].get();  // null: this one
    return other == nullptr || round.leavers[leaver]->is_known_to(other->store());
  };
  const auto self = std::ranges::find(round.hosts, nullptr) - round.hosts.begin();
  return plan_copies({.sizes = sizes_,
                      .hosts = hosts,
                      .self = static_cast<std::size_t>(self),
                      .leavers = leavers,
                      .reaches = reaches,
                      .next_use = next_use},
                     kPlanBytes);
}

/// Returns the number of images that have arrived and are kept.
std::uint64_t StoreCopier::pull(const Round& round, std::span<const StorePull> pulls,
                                const AbortSignal& stop) {
  std::uint64_t kept = 0;
  for (const bool as_second : {false, true}) {
    const auto& hosts = as_second ? round.hosts : round.leavers;
    for (std::size_t from = 0; from < hosts.size(); ++from) {
      std::vector<WantedImage> wanted;
      for (const StorePull& pull : pulls) {
        if (pull.from == from && pull.is_second == as_second) {
          wanted.push_back({.image = pull.item, .size = sizes_[pull.item], .bytes = {}});
        }
      }
      if (!wanted.empty() && hosts[from]->fetch_in_background(wanted, stop)) {
        count_failures(wanted, stop);
        kept += keep_arrived(wanted, as_second);
      }
    }
  }
  return kept;
}

/// Counts images that are damaged, and the first one that did not arrive: it may be the reason why
/// those after it did not arrive.
void StoreCopier::count_failures(std::span<const WantedImage> images, const AbortSignal& stop) {
  bool is_first = !stop.raised();
  for (const WantedImage& image : images) {
    if (image.bytes.empty() && (image.is_damaged || std::exchange(is_first, false))) {
      failures_[image.image] += 1;
    }
  }
}

std::uint64_t StoreCopier::keep_arrived(std::span<const WantedImage> images, bool as_second) {
  std::uint64_t kept = 0;
  for (const WantedImage& image : images) {
    const bool is_kept =
        !image.bytes.empty() && (as_second ? store_->keep_second(image.image, image.bytes)
                                           : store_->keep(image.image, image.bytes));
    kept += is_kept ? 1 : 0;
    copied_bytes_ += is_kept ? image.bytes.size() : 0;
  }
  return kept;
}

}  // namespace mayfly::datasets
