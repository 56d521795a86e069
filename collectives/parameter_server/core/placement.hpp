#pragma once

// Which server leads which shard, and which follows it; the same on all processes that have seen
// the same servers go. Pure; no thread matters.
//
// Server i of N is the home of shards [i * S, (i + 1) * S). With followers, those of server i are
// on server i + 1 (server 0 after the last). A server that is lost never comes back: what takes its
// number later has not its shards.

#include <cstdint>
#include <optional>
#include <set>

namespace mayfly::parameter_server {

class Placement {
 public:
  /// With followers there are at least two servers.
  Placement(std::uint32_t servers, std::uint32_t shards_per_server, bool has_followers)
      : servers_(servers), per_server_(shards_per_server), has_followers_(has_followers) {}

  void lose(std::uint32_t server) { lost_.insert(server); }
  [[nodiscard]] const std::set<std::uint32_t>& lost() const { return lost_; }

  [[nodiscard]] std::uint32_t home_of(std::uint32_t shard) const { return shard / per_server_; }
  /// Where its follower began.
  [[nodiscard]] std::uint32_t second_of(std::uint32_t shard) const {
    return (home_of(shard) + 1) % servers_;
  }
  /// Nothing: the shard is lost.
  [[nodiscard]] std::optional<std::uint32_t> leader_of(std::uint32_t shard) const {
    if (!lost_.contains(home_of(shard))) {
      return home_of(shard);
    }
    return has_followers_ && !lost_.contains(second_of(shard)) ? std::optional(second_of(shard))
                                                               : std::nullopt;
  }
  /// Nothing: whoever leads it is alone.
  [[nodiscard]] std::optional<std::uint32_t> follower_of(std::uint32_t shard) const {
    const bool both =
        has_followers_ && !lost_.contains(home_of(shard)) && !lost_.contains(second_of(shard));
    return both ? std::optional(second_of(shard)) : std::nullopt;
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

}  // namespace mayfly::parameter_server
