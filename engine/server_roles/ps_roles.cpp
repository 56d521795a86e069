#include "engine/server_roles/ps_roles.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <utility>

#include "engine/config/ps_settings.hpp"

namespace mayfly::engine {
namespace {

using parameter_server::Placement;

std::string shards_text(const std::vector<std::uint32_t>& shards) {
  return fmt::format("{} {}", shards.size() == 1 ? "shard" : "shards", fmt::join(shards, ", "));
}

std::string account_of(const PsServerPart& part) {
  std::string text = fmt::format("server {} is member {}{}", part.server, value(part.member),
                                 part.role.computes ? ", a worker," : "");
  text += part.role.leads.empty() ? " and leads no shard"
                                  : fmt::format(" and leads {}", shards_text(part.role.leads));
  return part.role.follows.empty()
             ? text
             : text + fmt::format(", follows {}", shards_text(part.role.follows));
}

}  // namespace

std::string name_of(const PsRole& role) {
  if (!role.server) {
    return role.computes ? "worker" : "none";
  }
  return role.computes ? "worker+server" : "server";
}

PsRoles::PsRoles(const JobConfig& config)
    : count_(server_count(config)), shards_(config.shards), servers_(config) {}

std::optional<PsServersNews> PsRoles::follow(const elastic::View& view) {
  computes_.clear();
  for (const elastic::ViewMember& member : view.members) {
    computes_[member.id] = is_worker(member.address);
  }
  const Placement before = servers_.placement();
  const bool knew = are_known_;
  are_missing_ = !servers_.follow(view).ok() || are_missing_;
  if (are_missing_) {
    return std::nullopt;
  }
  are_known_ = true;
  PsServersNews news;
  if (!knew) {
    news.servers = parts();
    for (const PsServerPart& part : news.servers) {
      news.detail += (news.detail.empty() ? "" : "; ") + account_of(part);
    }
    return news;
  }
  for (const std::uint32_t index : servers_.placement().lost()) {
    if (!before.lost().contains(index)) {
      news.lost.push_back(index);
      news.detail += (news.detail.empty() ? "" : "; ") + account_of_loss(index, before);
    }
  }
  if (news.lost.empty()) {
    return std::nullopt;
  }
  news.servers = parts();
  return news;
}

std::uint32_t PsRoles::servers_left() const {
  return are_known_ ? static_cast<std::uint32_t>(parts().size()) : count_;
}

std::optional<PsRole> PsRoles::role_of(MemberId member) const {
  const auto known = computes_.find(member);
  if (known == computes_.end()) {
    return std::nullopt;
  }
  PsRole role;
  for (std::uint32_t index = 0; are_known_ && index < count_; ++index) {
    if (servers_.is_server(index, member) && !servers_.placement().lost().contains(index)) {
      role = part_of_server(index);
    }
  }
  role.computes = known->second;
  return role;
}

PsRole PsRoles::part_of_server(std::uint32_t index) const {
  PsRole role;
  role.server = index;
  for (std::uint32_t shard = 0; shard < count_ * shards_; ++shard) {
    if (servers_.placement().leader_of(shard) == index) {
      role.leads.push_back(shard);
    } else if (servers_.placement().follower_of(shard) == index) {
      role.follows.push_back(shard);
    }
  }
  return role;
}

std::vector<PsServerPart> PsRoles::parts() const {
  std::vector<PsServerPart> all;
  for (const auto& [member, computes] : computes_) {
    if (std::optional<PsRole> role = role_of(member); role && role->server) {
      all.push_back({*role->server, member, std::move(*role)});
    }
  }
  std::sort(all.begin(), all.end(),
            [](const PsServerPart& a, const PsServerPart& b) { return a.server < b.server; });
  return all;
}

/// A text on the loss of a server: which shards it led and followed, and which server leads them
/// now.
std::string PsRoles::account_of_loss(std::uint32_t index, const Placement& before) const {
  const Placement& now = servers_.placement();
  std::vector<std::uint32_t> moved;
  std::vector<std::uint32_t> alone;
  std::vector<std::uint32_t> lost;
  std::optional<std::uint32_t> leader;
  for (std::uint32_t shard = 0; shard < count_ * shards_; ++shard) {
    if (before.leader_of(shard) == index) {
      leader = now.leader_of(shard) ? now.leader_of(shard) : leader;
      (now.leader_of(shard) ? moved : lost).push_back(shard);
    } else if (before.follower_of(shard) == index && now.leader_of(shard)) {
      alone.push_back(shard);
    }
  }
  std::string text = fmt::format("server {} is lost", index);
  if (!moved.empty()) {
    text += fmt::format(", server {} leads {}", *leader, shards_text(moved));
  }
  if (!alone.empty()) {
    text += fmt::format(", {} without a follower", shards_text(alone));
  }
  if (!lost.empty()) {
    text += fmt::format(", and with it {}", shards_text(lost));
  }
  return text;
}

}  // namespace mayfly::engine
