#include "datasets/core/store_directory.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace mayfly::datasets {

StoreDirectory::StoreDirectory(std::vector<std::uint32_t> sizes)
    : sizes_(std::move(sizes)), owners_(sizes_.size()) {
  ENSURE(!sizes_.empty(), "a data set has items");
  for (const std::uint32_t size : sizes_) {
    absent_ += size;
  }
}

void StoreDirectory::join(StoreHost host, std::uint64_t capacity) {
  ENSURE(host != kNoStoreHost && host <= kStoreHostsMax && !hosts_[host].is_there, "a new host");
  hosts_[host] = {.is_there = true, .is_leaving = false, .free = capacity};
  free_ += capacity;
}

std::uint64_t StoreDirectory::leave(StoreHost host) {
  ENSURE(hosts_[host].is_there, "a host that is there");
  const std::uint64_t absent_before = absent_;
  for (std::uint64_t item = 0; item < items(); ++item) {
    if (is_kept_by(host, item)) {
      remove(host, item);
    }
  }
  free_ -= hosts_[host].free;
  hosts_[host] = {};
  return absent_ - absent_before;
}

bool StoreDirectory::is_kept_by(StoreHost host, std::uint64_t item) const {
  return host != kNoStoreHost && (owners_[item][0] == host || owners_[item][1] == host);
}

void StoreDirectory::add(StoreHost host, std::uint64_t item) {
  auto& [first, second] = owners_[item];
  const std::uint32_t size = sizes_[item];
  ENSURE(host != first && second == kNoStoreHost && hosts_[host].free >= size, "there is room");
  hosts_[host].free -= size;
  free_ -= size;
  if (first == kNoStoreHost) {
    first = host;
    absent_ -= size;
  } else {
    second = host;
    hosts_[first].doubled += size;
    hosts_[second].doubled += size;
  }
}

void StoreDirectory::remove(StoreHost host, std::uint64_t item) {
  auto& [first, second] = owners_[item];
  const std::uint32_t size = sizes_[item];
  if (!hosts_[host].is_leaving) {
    hosts_[host].free += size;
    free_ += size;
  }
  if (second == kNoStoreHost) {
    first = kNoStoreHost;
    absent_ += size;
    return;
  }
  hosts_[first].doubled -= size;
  hosts_[second].doubled -= size;
  first = first == host ? second : first;
  second = kNoStoreHost;
}

/// The host has room, perhaps after it has given up items that another host keeps, too.
StoreDirectory::Kept StoreDirectory::keep(StoreHost host, std::uint64_t item) {
  Kept kept{.host = host, .given_up = {}};
  Host& own = hosts_[host];
  ENSURE(room(host, true) >= sizes_[item], "there is room");
  while (own.free < sizes_[item]) {
    const std::uint64_t candidate = own.next;
    own.next = (own.next + 1) % items();
    if (candidate != item && owners_[candidate][1] != kNoStoreHost && is_kept_by(host, candidate)) {
      remove(host, candidate);
      kept.given_up.push_back(candidate);
    }
  }
  add(host, item);
  return kept;
}

std::uint64_t StoreDirectory::room(StoreHost host, bool gives_up) const {
  return hosts_[host].free + (gives_up ? hosts_[host].doubled : 0);
}

/// The host with most room, if that is as much; the lowest of several. `gives_up`: it would give up
/// what another host keeps, too.
StoreHost StoreDirectory::roomiest(std::uint64_t bytes, bool gives_up) const {
  StoreHost best = kNoStoreHost;
  for (StoreHost host = 1; host <= kStoreHostsMax; ++host) {
    const bool has_room =
        hosts_[host].is_there && !hosts_[host].is_leaving && room(host, gives_up) >= bytes;
    if (has_room && (best == kNoStoreHost || room(host, gives_up) > room(best, gives_up))) {
      best = host;
    }
  }
  return best;
}

/// Who keeps an item that nobody keeps: preferably its reader, and where nothing is given up.
StoreHost StoreDirectory::adopter(StoreHost reader, std::uint64_t bytes) const {
  for (const bool gives_up : {false, true}) {
    if (!hosts_[reader].is_leaving && room(reader, gives_up) >= bytes) {
      return reader;
    }
    if (const StoreHost other = roomiest(bytes, gives_up); other != kNoStoreHost) {
      return other;
    }
  }
  return kNoStoreHost;
}

/// Whether a second copy of so many bytes leaves room for all items that nobody keeps.
bool StoreDirectory::is_spare(std::uint64_t bytes) const {
  return free_ >= bytes + absent_;
}

std::array<StoreHost, 2> StoreDirectory::to_ask(StoreHost reader, std::uint64_t item) const {
  const auto [first, second] = owners_[item];
  // Readers take turns between two owners, so that both serve.
  const bool is_turned =
      second != kNoStoreHost && first != reader && (second == reader || (reader + item) % 2 == 1);
  return is_turned ? std::array{second, first} : std::array{first, second};
}

StoreDirectory::Read StoreDirectory::read(StoreHost reader, std::uint64_t item) {
  ENSURE(hosts_[reader].is_there && item < items(), "a host that is there reads an item");
  Read read;
  read.from = to_ask(reader, item)[0];
  if (read.from == reader) {
    return read;
  }
  const std::uint32_t size = sizes_[item];
  if (read.from == kNoStoreHost) {
    if (const StoreHost host = adopter(reader, size); host != kNoStoreHost) {
      read.kept = keep(host, item);
    }
  } else if (owners_[item][1] == kNoStoreHost && hosts_[reader].free >= size && is_spare(size)) {
    read.kept = keep(reader, item);
  }
  return read;
}

std::vector<StoreDirectory::Move> StoreDirectory::hand_over(
    StoreHost leaver, const std::function<std::uint64_t(std::uint64_t item)>& next_use,
    std::uint64_t bytes_max) {
  ENSURE(hosts_[leaver].is_there, "a host that is there");
  free_ -= hosts_[leaver].free;
  hosts_[leaver].free = 0;
  hosts_[leaver].is_leaving = true;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> needed;  // when, what
  for (std::uint64_t item = 0; item < items(); ++item) {
    if (!is_kept_by(leaver, item)) {
      continue;
    }
    if (owners_[item][1] != kNoStoreHost) {
      remove(leaver, item);  // or the other would give its copy up for want of room
    } else {
      needed.emplace_back(next_use(item), item);
    }
  }
  std::ranges::sort(needed);
  std::vector<Move> moves;
  for (const auto& [when, item] : needed) {
    const std::uint32_t size = sizes_[item];
    StoreHost to = roomiest(size, false);
    to = to == kNoStoreHost ? roomiest(size, true) : to;
    if (size > bytes_max || to == kNoStoreHost) {
      continue;  // a smaller one may still fit
    }
    bytes_max -= size;
    remove(leaver, item);
    moves.push_back({item, keep(to, item)});
  }
  return moves;
}

void replay_step(StoreDirectory& directory, const SampleStream& stream, std::uint64_t first,
                 std::uint32_t microbatch, std::span<const StoreHost> host_of) {
  for (const StoreHost host : host_of) {
    for (std::uint32_t i = 0; i < microbatch; ++i) {
      (void)directory.read(host, stream.at(first++).sample);
    }
  }
}

std::uint64_t next_use_of(const SampleStream& stream, std::uint64_t position,
                          std::uint64_t sample) {
  const std::uint64_t epoch = position / stream.sample_count();
  const std::uint64_t in_this = stream.position_of(epoch, sample);
  return in_this >= position ? in_this : stream.position_of(epoch + 1, sample);
}

}  // namespace mayfly::datasets
