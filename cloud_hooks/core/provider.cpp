#include "cloud_hooks/core/provider.hpp"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/check.hpp"
#include "base/try_assign.hpp"

namespace mayfly::cloud_hooks {
namespace {

template <typename T, std::size_t N>
std::optional<T> named(const std::array<T, N>& all, const std::string& name) {
  for (const T candidate : all) {
    if (name == to_string(candidate)) {
      return candidate;
    }
  }
  return std::nullopt;
}

constexpr std::array kErrorKinds = {ProviderErrorKind::kCapacity, ProviderErrorKind::kQuota,
                                    ProviderErrorKind::kAuth, ProviderErrorKind::kRate,
                                    ProviderErrorKind::kConfig};
constexpr std::array kMarkets = {Market::kSpot, Market::kOnDemand};
constexpr std::array kServerStates = {ServerState::kStarting, ServerState::kRunning,
                                      ServerState::kStopping, ServerState::kGone};

}  // namespace

const char* to_string(ProviderErrorKind kind) {
  switch (kind) {
    case ProviderErrorKind::kCapacity: return "capacity";
    case ProviderErrorKind::kQuota: return "quota";
    case ProviderErrorKind::kAuth: return "auth";
    case ProviderErrorKind::kRate: return "rate";
    case ProviderErrorKind::kConfig: return "config";
  }
  UNREACHABLE("all kinds are listed");
}

std::optional<ProviderErrorKind> error_kind_of(const std::string& name) {
  return named(kErrorKinds, name);
}

const char* to_string(Market market) {
  return market == Market::kSpot ? "spot" : "on_demand";
}

std::optional<Market> market_of(const std::string& name) {
  return named(kMarkets, name);
}

std::string to_string(const Offer& offer) {
  if (offer == Offer{}) {  // of a provider that has no types, zones and markets
    return "a server";
  }
  const std::string type = offer.machine_type.empty() ? "a server" : offer.machine_type;
  const std::string zone = offer.zone.empty() ? "" : " in " + offer.zone;
  return type + zone + (offer.market == Market::kSpot ? " (spot)" : " (on demand)");
}

const char* to_string(ServerState state) {
  switch (state) {
    case ServerState::kStarting: return "starting";
    case ServerState::kRunning: return "running";
    case ServerState::kStopping: return "stopping";
    case ServerState::kGone: return "gone";
  }
  UNREACHABLE("all states are listed");
}

ServerStatus status_in(std::vector<ServerStatus> servers, const std::string& id) {
  for (ServerStatus& server : servers) {
    if (server.id == id) {
      return std::move(server);
    }
  }
  ServerStatus gone;
  gone.id = id;
  return gone;
}

Answer<std::vector<ServerStatus>> list_pages(
    const std::function<Answer<ServerPage>(const std::string& token)>& page_at) {
  constexpr int kPagesMax = 100;
  std::vector<ServerStatus> servers;
  std::string token;
  for (int number = 0; number < kPagesMax; ++number) {
    TRY_ASSIGN(ServerPage page, page_at(token));
    std::move(page.servers.begin(), page.servers.end(), std::back_inserter(servers));
    if (page.next_token.empty()) {
      sort_oldest_first(servers);
      return servers;
    }
    token = std::move(page.next_token);
  }
  return ProviderError{ProviderErrorKind::kRate, "a list of servers without an end"};
}

void sort_oldest_first(std::vector<ServerStatus>& servers) {
  std::stable_sort(servers.begin(), servers.end(),
                   [](const ServerStatus& a, const ServerStatus& b) {
                     return a.uptime.value_or(Duration(0)) > b.uptime.value_or(Duration(0));
                   });
}

std::optional<ServerState> server_state_of(const std::string& name) {
  return named(kServerStates, name);
}

std::string make_request_id(const CounterRandom& random, std::uint64_t number) {
  constexpr char kDigits[] = "0123456789abcdef";
  constexpr std::size_t kUuidCharacters = 36;
  constexpr std::size_t kVersionPlace = 14;
  constexpr std::size_t kVariantPlace = 19;
  const std::uint64_t halves[2] = {random.bits(2 * number), random.bits(2 * number + 1)};
  std::string text;
  std::size_t digit = 0;
  for (std::size_t place = 0; place < kUuidCharacters; ++place) {
    if (place == 8 || place == 13 || place == 18 || place == 23) {
      text += '-';
      continue;
    }
    std::uint64_t bits = (halves[digit / 16] >> (4 * (digit % 16))) & 15U;
    ++digit;
    bits = place == kVersionPlace ? 4U : place == kVariantPlace ? (8U | (bits & 3U)) : bits;
    text += kDigits[bits];
  }
  return text;
}

}  // namespace mayfly::cloud_hooks
