#include "engine/server_roles/ps_servers.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <string_view>
#include <utility>

#include "base/check.hpp"
#include "base/parse.hpp"
#include "base/try_assign.hpp"
#include "engine/config/ps_settings.hpp"

namespace mayfly::engine {
namespace {

constexpr std::string_view kServerPrefix = "ps-server:";
constexpr std::string_view kColocatedPrefix = "ps-colocated:";

/// Whether this may be the job's first view; false if members have trained in an earlier one.
bool may_be_the_first(const elastic::View& view) {
  return value(view.id) == elastic::id_base(elastic::incarnation_of(view.id)) + 1;
}

}  // namespace

std::string to_text(const ServerAddress& address) {
  std::string text =
      fmt::format("{}{}", address.computes ? kColocatedPrefix : kServerPrefix, address.index);
  for (const std::string& shard : address.shards) {
    text += "|" + shard;
  }
  text += address.followers.empty() ? "" : "|";
  for (const std::string& follower : address.followers) {
    text += "|" + follower;
  }
  return text;
}

Result<std::optional<ServerAddress>> parse_server_address(const std::string& text) {
  ServerAddress address;
  address.computes = text.starts_with(kColocatedPrefix);
  const std::string_view prefix = address.computes ? kColocatedPrefix : kServerPrefix;
  if (!text.starts_with(prefix)) {
    return std::optional<ServerAddress>();
  }
  const std::vector<std::string_view> parts =
      split(std::string_view(text).substr(prefix.size()), '|');
  const auto index = parts.empty() ? std::nullopt : number_in<std::uint32_t>(parts.front());
  address.index = index.value_or(0);
  address.shards.assign(parts.begin() + (parts.empty() ? 0 : 1), parts.end());
  const auto border = std::find(address.shards.begin(), address.shards.end(), "");
  if (border != address.shards.end()) {
    address.followers.assign(border + 1, address.shards.end());
    address.shards.erase(border, address.shards.end());
  }
  if (!index || address.shards.empty()) {
    return Error{Errc::kInvalidInput, "not the address of a parameter server: " + text};
  }
  return std::optional(std::move(address));
}

bool is_worker(const std::string& address) {
  return address == kPsWorkerAddress || address.starts_with(kColocatedPrefix);
}

bool is_server_only(const std::string& address) {
  return address.starts_with(kServerPrefix);
}

bool has_server(const std::string& address) {
  return address.starts_with(kServerPrefix) || address.starts_with(kColocatedPrefix);
}

PsServers::PsServers(const JobConfig& config)
    : count_(server_count(config)),
      shards_(config.shards),
      has_followers_(config.ps_replicas > 0),
      colocated_(carries_servers(config)),
      placement_(count_, config.shards, config.ps_replicas > 0),
      servers_(count_) {}

Result<void> PsServers::follow(const elastic::View& view) {
  if (!std::exchange(has_met_, true)) {
    return meet(view);
  }
  for (std::uint32_t index = 0; index < count_; ++index) {
    if (!servers_[index]) {
      continue;
    }
    const elastic::ViewMember* member = elastic::member_of(view, servers_[index]->id);
    if (member == nullptr || member->address != servers_[index]->text) {
      placement_.lose(index);
    }
  }
  return {};
}

Result<void> PsServers::meet(const elastic::View& view) {
  for (const elastic::ViewMember& member : view.members) {
    TRY_ASSIGN(std::optional<ServerAddress> address, parse_server_address(member.address));
    if (!address) {
      continue;
    }
    const std::uint32_t index = address->index;
    const bool is_one_of_ours = index < servers_.size();
    const bool is_second = is_one_of_ours && servers_[index].has_value();
    const bool is_spare = !is_one_of_ours || is_second;
    const bool came_late = !may_be_the_first(view) || (is_second && (has_followers_ || colocated_));
    if (is_spare && came_late) {
      continue;  // the job has its servers, or has lost this one before; the newcomer will leave
    }
    if (is_spare) {
      return Error{Errc::kInvalidInput,
                   fmt::format("two parameter servers have index {}; see --ps-index", index)};
    }
    servers_[index] = Server{member.id, *std::move(address), member.address};
  }
  for (std::uint32_t index = 0; index < count_; ++index) {
    const bool is_whole = servers_[index] && servers_[index]->address.shards.size() == shards_ &&
                          (!has_followers_ || servers_[index]->address.followers.size() == shards_);
    if (!is_whole) {
      servers_[index].reset();
      placement_.lose(index);
    }
  }
  if (!placement_.is_torn()) {
    return {};
  }
  return Error{
      Errc::kNotFound,
      fmt::format(
          "view {} has not all of the {} parameter servers with {} shards{}", value(view.id),
          count_, shards_,
          colocated_ ? "; the workers with --worker-number 0 to --workers - 1 run one each" : "")};
}

const std::string& PsServers::second_address(std::uint32_t shard) const {
  return servers_[placement_.initial_follower_of(shard)]->address.followers[shard % shards_];
}

std::optional<std::string> PsServers::leader_address(std::uint32_t shard) const {
  const std::optional<std::uint32_t> leader = placement_.leader_of(shard);
  if (!leader) {
    return std::nullopt;
  }
  return *leader == placement_.initial_leader_of(shard)
             ? servers_[*leader]->address.shards[shard % shards_]
             : second_address(shard);
}

std::string PsServers::follower_address(std::uint32_t shard) const {
  return placement_.follower_of(shard) ? second_address(shard) : std::string();
}

MemberId PsServers::follower_member(std::uint32_t shard) const {
  const std::optional<std::uint32_t> follower = placement_.follower_of(shard);
  return follower ? servers_[*follower]->id : MemberId{};
}

MemberId PsServers::leader_member(std::uint32_t shard) const {
  const std::optional<std::uint32_t> leader = placement_.leader_of(shard);
  ENSURE(leader, "the shard has a leader");
  return servers_[*leader]->id;
}

std::optional<MemberId> PsServers::server_to_give_up(const elastic::View& view,
                                                     std::uint32_t shard) const {
  const std::optional<std::uint32_t> leader = placement_.leader_of(shard);
  if (count_workers(view) > 1 || !leader) {
    return std::nullopt;
  }
  parameter_server::Placement without = placement_;
  without.lose(*leader);
  return without.is_torn() ? std::nullopt : std::optional(servers_[*leader]->id);
}

std::size_t count_workers(const elastic::View& view) {
  return static_cast<std::size_t>(std::ranges::count_if(
      view.members, [](const elastic::ViewMember& member) { return is_worker(member.address); }));
}

bool is_late_server(const elastic::View& first_view, Step committed) {
  return first_view.committed > committed || !may_be_the_first(first_view);
}

}  // namespace mayfly::engine
