#include "engine/server_roles/server_address.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

namespace mayfly::engine {
namespace {

constexpr std::string_view kServerPrefix = "ps-server:";
constexpr std::string_view kColocatedPrefix = "ps-colocated:";

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
  std::size_t end = std::min(text.find('|'), text.size());
  const char* const last = text.data() + end;
  const auto parsed = std::from_chars(text.data() + prefix.size(), last, address.index);
  while (end < text.size()) {
    const std::size_t begin = end + 1;
    end = std::min(text.find('|', begin), text.size());
    address.shards.push_back(text.substr(begin, end - begin));
  }
  const auto border = std::find(address.shards.begin(), address.shards.end(), "");
  if (border != address.shards.end()) {
    address.followers.assign(border + 1, address.shards.end());
    address.shards.erase(border, address.shards.end());
  }
  if (parsed.ec != std::errc{} || parsed.ptr != last || address.shards.empty()) {
    return Error{Errc::kInvalidInput, "not the address of a parameter server: " + text};
  }
  return std::optional(std::move(address));
}

bool is_worker(const std::string& address) {
  return address == kPsWorkerAddress || address.starts_with(kColocatedPrefix);
}

}  // namespace mayfly::engine
