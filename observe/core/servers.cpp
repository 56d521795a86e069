#include "observe/core/servers.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/parse.hpp"
#include "base/time.hpp"

namespace mayfly::observe {
namespace {

constexpr std::size_t kRequestsMax = 1000;  // requests that are neither granted nor refused

std::string type_in(const std::string& offer) {
  return offer.substr(0, offer.find(' '));
}

/// An offer TYPE@ZONE:MARKET=PRICE, with its text in records: "TYPE in ZONE (MARKET)".
struct Offer {
  std::string text;
  bool on_demand = false;
  double price = 0;
};

/// Parses an offer as engine::parse_offers() does, and writes it as cloud_hooks::to_string() does:
/// on spot unless the word has a market, and perhaps without a type.
std::optional<Offer> parse_offer(const std::string& word) {
  const std::size_t equals = word.rfind('=');
  if (equals == std::string::npos) {
    return std::nullopt;
  }
  const std::size_t colon = word.rfind(':', equals);
  const std::string place = word.substr(0, std::min(colon, equals));
  const std::string market =
      colon == std::string::npos ? "" : word.substr(colon + 1, equals - colon - 1);
  Offer offer;
  const std::size_t at = std::min(place.rfind('@'), place.size());
  const std::string type = place.substr(0, at);
  const std::string zone = at < place.size() ? place.substr(at + 1) : "";
  offer.on_demand = market == "on_demand";
  offer.text = type.empty() ? "a server" : type;
  offer.text += zone.empty() ? "" : " in " + zone;
  if (offer.text != "a server" || offer.on_demand) {
    offer.text += offer.on_demand ? " (on demand)" : " (spot)";
  }
  const char* end = word.data() + word.size();
  if (std::from_chars(word.data() + equals + 1, end, offer.price).ec != std::errc{}) {
    return std::nullopt;
  }
  return offer;
}

}  // namespace

void Servers::prices(const std::string& offers) {
  for (const std::string_view word : split(offers, ',')) {
    if (const std::optional<Offer> offer = parse_offer(std::string(word))) {
      prices_[offer->text] = offer->price;
      if (offer->on_demand) {
        const auto [place, is_new] = on_demand_.try_emplace(type_in(offer->text), offer->price);
        place->second = std::min(place->second, offer->price);
      }
    }
  }
}

void Servers::requested(double t, const std::string& detail) {
  std::uint32_t count = 1;
  std::string offer = detail.substr(0, detail.find(','));
  const std::size_t times = offer.find(" x ");
  if (times != std::string::npos) {
    std::from_chars(offer.data(), offer.data() + times, count);
    offer.erase(0, times + 3);
  }
  // A repetition of a request with the same id is not a new request.
  const bool again = detail.find(", once more") != std::string::npos;
  if (again && open_request(offer) != nullptr) {
    return;
  }
  if (requests_.size() == kRequestsMax) {
    requests_.erase(requests_.begin());
  }
  requests_.push_back({t, offer, count});
}

Servers::Request* Servers::open_request(const std::string& text) {
  const auto found = std::find_if(requests_.begin(), requests_.end(), [&](const Request& request) {
    return request.missing > 0 && text.find(request.offer) != std::string::npos;
  });
  return found == requests_.end() ? nullptr : &*found;
}

void Servers::refused(double t, const std::string& detail) {
  Request* request = open_request(detail);
  ServerLane lane;
  lane.asked = request == nullptr ? t : request->t;
  lane.offer = request == nullptr ? "" : request->offer;
  lane.ended = t;
  lane.end = "refused";
  lane.detail = detail;
  lanes_.push_back(std::move(lane));
  if (request != nullptr && detail.find("will be repeated") == std::string::npos) {
    requests_.erase(requests_.begin() + (request - requests_.data()));
  }
}

void Servers::granted(double t, const std::string& server, const std::string& offer) {
  // A restarted coordinator records the grant of a server again. After its end, however, a host of
  // a list may be granted again under the same name.
  if (const ServerLane* known = lane_of(server); known != nullptr && !known->ended) {
    return;
  }
  Request* request = open_request(offer);
  ServerLane lane;
  lane.server = server;
  lane.offer = offer;
  lane.asked = request == nullptr ? t : request->t;
  lane.granted = t;
  if (const auto price = prices_.find(offer); price != prices_.end()) {
    lane.price = price->second;
  }
  if (const auto price = on_demand_.find(type_in(offer)); price != on_demand_.end()) {
    lane.on_demand_price = price->second;
  }
  if (request != nullptr && --request->missing == 0) {
    requests_.erase(requests_.begin() + (request - requests_.data()));
  }
  by_server_[server] = lanes_.size();
  lanes_.push_back(std::move(lane));
}

ServerLane* Servers::lane_of(const std::string& server) {
  const auto place = by_server_.find(server);
  return place == by_server_.end() ? nullptr : &lanes_[place->second];
}

void Servers::joined(double t, const std::string& server) {
  if (ServerLane* lane = lane_of(server); lane != nullptr && !lane->joined) {
    lane->joined = t;
  }
}

void Servers::ended(double t, const std::string& server, const std::string& end,
                    const std::string& detail, std::optional<double> cost) {
  ServerLane* lane = lane_of(server);
  if (lane == nullptr || lane->cost) {
    return;
  }
  if (end == "ended") {
    lane->ended = t;
    lane->cost = cost;
  }
  lane->end = lane->end.empty() ? end : lane->end;
  lane->detail = detail.empty() ? lane->detail : detail;
}

void Servers::money(const MoneyPoint& point) {
  if (!points_.empty() && points_.back().spent == point.spent &&
      points_.back().per_hour == point.per_hour && points_.back().billing == point.billing) {
    return;
  }
  points_.push_back(point);
}

void Servers::part_ended(double t) {
  if (!points_.empty()) {
    money({t, points_.back().spent, 0, 0});
  }
}

double Servers::spent(double now) const {
  if (points_.empty()) {
    return 0;
  }
  const MoneyPoint& last = points_.back();
  return last.spent + last.per_hour * std::max(0.0, now - last.t) / kSecondsPerHour;
}

std::optional<double> Servers::on_demand_cost(double now) const {
  if (points_.empty()) {
    return std::nullopt;
  }
  double cost = spent(now);
  bool has_servers = false;
  for (const ServerLane& lane : lanes_) {
    if (!lane.granted) {
      continue;
    }
    has_servers = true;
    if (!lane.price || !lane.on_demand_price || !(*lane.price > 0)) {
      return std::nullopt;
    }
    const double hours = (lane.ended.value_or(now) - *lane.granted) / kSecondsPerHour;
    cost += lane.cost.value_or(hours * *lane.price) * (*lane.on_demand_price / *lane.price - 1);
  }
  return has_servers ? std::optional(cost) : std::nullopt;
}

}  // namespace mayfly::observe
