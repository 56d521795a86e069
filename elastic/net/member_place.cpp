#include "elastic/net/member_place.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/net/sockets.hpp"

namespace mayfly::elastic {
namespace {

std::string advice(const MemberPlace& wrong, const MemberPlace& other, const char* who) {
  return fmt::format(
      "{} on {} listens at {}, which only its own host can reach, and {} is on another host ({}): "
      "start it without --bind-host, or with an address or network interface that other hosts can "
      "reach",
      who, wrong.name, wrong.address.substr(0, wrong.address.find(';')), other.name, other.host);
}

}  // namespace

bool means_own_host(const std::string& address) {
  for (const std::string prefix : {"tcp:", "gloo:"}) {  // a server's address has one for each shard
    for (std::size_t at = address.find(prefix); at != std::string::npos;
         at = address.find(prefix, at + 1)) {
      std::string host = address.substr(at + prefix.size());
      host = host.substr(0, host.find_first_of(";|"));
      if (host.starts_with('[')) {
        host = host.substr(1, host.find(']') - 1);
      } else if (std::count(host.begin(), host.end(), ':') == 1) {
        host = host.substr(0, host.find(':'));
      }
      if (is_loopback(host)) {
        return true;
      }
    }
  }
  return false;
}

std::optional<std::string> reason_out_of_reach(const MemberPlace& newcomer,
                                               const std::vector<MemberPlace>& members) {
  const bool is_hidden = means_own_host(newcomer.address);
  for (const MemberPlace& member : members) {
    if (member.host == newcomer.host) {
      continue;
    }
    if (is_hidden) {
      return advice(newcomer, member, "this worker");
    }
    if (means_own_host(member.address)) {
      return advice(member, newcomer, "a member of this job");
    }
  }
  return std::nullopt;
}

std::string host_of_peer(int fd) {
  const std::string peer = peer_endpoint(fd).host;
  return is_loopback(peer) || peer == bound_endpoint(fd).host ? "this host" : peer;
}

std::string printable(const std::string& name) {
  std::string text = name.substr(0, 64);
  std::replace_if(
      text.begin(), text.end(),
      [](unsigned char c) { return std::isalnum(c) == 0 && c != '.' && c != '-' && c != '_'; },
      '?');
  return text;
}

}  // namespace mayfly::elastic
