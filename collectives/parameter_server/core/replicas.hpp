#pragma once

// Replication of a shard: the servers of its leader and its follower, and when the leader may send.
// Pure; not thread-safe.
//
// Server i of N is the home of shards [i * S, (i + 1) * S). With followers, those of server i are
// on server i + 1 (server 0 after the last). A server that is lost never comes back: a server that
// takes its number later does not have its shards.
//
// The leader numbers every message that it receives (an *entry*) and sends it to the follower. An
// output of the leader (parameters, a lease, the record of a step) depends on the entries up to
// some number. It is held back until the follower has taken these entries. So no process has seen
// an effect of an entry that the follower lacks. When the leader is lost, nothing has to be undone:
// an entry that the follower lacks was not answered, and its worker pushes it again.

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <utility>

#include "base/result.hpp"

namespace mayfly::parameter_server {

/// Which server leads each shard, and which one follows it; the same on all processes that have
/// seen the same servers leave.
class Placement {
 public:
  /// With followers there are at least two servers.
  Placement(std::uint32_t servers, std::uint32_t shards_per_server, bool has_followers)
      : servers_(servers), per_server_(shards_per_server), has_followers_(has_followers) {}

  void lose(std::uint32_t server) { lost_.insert(server); }
  [[nodiscard]] const std::set<std::uint32_t>& lost() const { return lost_; }

  [[nodiscard]] std::uint32_t initial_leader_of(std::uint32_t shard) const {
    return shard / per_server_;
  }
  /// The server of its first follower.
  [[nodiscard]] std::uint32_t initial_follower_of(std::uint32_t shard) const {
    return (initial_leader_of(shard) + 1) % servers_;
  }
  /// The server of its leader; nothing if the shard is lost.
  [[nodiscard]] std::optional<std::uint32_t> leader_of(std::uint32_t shard) const {
    if (!lost_.contains(initial_leader_of(shard))) {
      return initial_leader_of(shard);
    }
    return has_followers_ && !lost_.contains(initial_follower_of(shard))
               ? std::optional(initial_follower_of(shard))
               : std::nullopt;
  }
  /// The server of its follower; nothing if there is no follower (any more).
  [[nodiscard]] std::optional<std::uint32_t> follower_of(std::uint32_t shard) const {
    const bool both = has_followers_ && !lost_.contains(initial_leader_of(shard)) &&
                      !lost_.contains(initial_follower_of(shard));
    return both ? std::optional(initial_follower_of(shard)) : std::nullopt;
  }
  /// Some shard has no leader.
  [[nodiscard]] bool is_torn() const {
    for (const std::uint32_t server : lost_) {
      if (!leader_of(server * per_server_)) {
        return true;
      }
    }
    return false;
  }

 private:
  std::uint32_t servers_;
  std::uint32_t per_server_;
  bool has_followers_;
  std::set<std::uint32_t> lost_;
};

/// The leader's side.
class LeaderLog {
 public:
  explicit LeaderLog(bool has_follower) : has_follower_(has_follower) {}

  [[nodiscard]] bool has_follower() const { return has_follower_; }
  /// The number of the next message that the leader receives, from 1.
  std::uint64_t add() { return ++last_; }
  [[nodiscard]] std::uint64_t last() const { return last_; }
  /// The follower has every entry up to this number. kCorrupt if that is impossible.
  [[nodiscard]] Result<void> taken(std::uint64_t through) {
    if (through > last_ || through < taken_) {
      return Error{Errc::kCorrupt, "a follower that acknowledges entries that it was not sent"};
    }
    taken_ = through;
    return {};
  }
  /// Outputs that depend only on entries up to this number may be sent.
  [[nodiscard]] std::uint64_t safe() const { return has_follower_ ? taken_ : UINT64_MAX; }
  /// The view has no follower: from now on no output is held back any more.
  void lose_follower() { has_follower_ = false; }

 private:
  bool has_follower_;
  std::uint64_t last_ = 0;
  std::uint64_t taken_ = 0;
};

/// The outputs that a leader holds back until its follower has taken the entries on which they
/// depend.
template <typename T>
class HeldBack {
 public:
  /// `entry`: the newest entry on which the item depends; not below that of the item before.
  void add(std::uint64_t entry, T item) { items_.emplace_back(entry, std::move(item)); }
  [[nodiscard]] bool empty() const { return items_.empty(); }
  /// Removes the oldest item and returns it if it may be sent: `safe` as LeaderLog::safe().
  [[nodiscard]] std::optional<T> next(std::uint64_t safe) {
    if (items_.empty() || items_.front().first > safe) {
      return std::nullopt;
    }
    std::optional<T> item(std::move(items_.front().second));
    items_.pop_front();
    return item;
  }

 private:
  std::deque<std::pair<std::uint64_t, T>> items_;
};

enum class EntryVerdict : std::uint8_t { kNew, kRepeat, kGap };

/// The follower's side.
class FollowerLog {
 public:
  /// kNew: the entry must be carried out now, and counts as taken.
  [[nodiscard]] EntryVerdict judge(std::uint64_t entry) {
    if (entry <= taken_) {
      return EntryVerdict::kRepeat;  // sent again after a connection broke
    }
    if (entry != taken_ + 1) {
      return EntryVerdict::kGap;
    }
    taken_ = entry;
    return EntryVerdict::kNew;
  }
  [[nodiscard]] std::uint64_t taken() const { return taken_; }

 private:
  std::uint64_t taken_ = 0;
};

}  // namespace mayfly::parameter_server
