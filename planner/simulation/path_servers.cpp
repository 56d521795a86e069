#include "planner/simulation/path_servers.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace mayfly::planner {

double PathServer::next_s() const {
  const double end_s = std::min(fate.dies_s, leaving.at_s);
  return works ? end_s : std::min(fate.joins_s, end_s);
}

ServerEvent PathServer::next() const {
  if (!works && fate.joins_s <= std::min(fate.dies_s, leaving.at_s)) {
    return ServerEvent::kJoins;
  }
  return fate.dies_s <= leaving.at_s ? ServerEvent::kTaken : leaving.why;
}

PathServers::PathServers(const CandidateOffers& offers, const Billing& billing)
    : offers_(offers), bill_(billing) {
  clear();
}

void PathServers::clear() {
  servers_.clear();
  events_.clear();
  bill_.clear();
  granted_ = 0;
  present_ = on_demand_present_ = 0;
  present_of_.assign(offers_.size(), 0);
}

void PathServers::count(std::size_t offer, bool is_present) {
  const auto count_in = [&](std::uint32_t& number) { is_present ? ++number : --number; };
  count_in(present_);
  count_in(present_of_[offer]);
  if (offers_.is_on_demand(offer)) {
    count_in(on_demand_present_);
  }
}

void PathServers::add(std::size_t offer, const ServerFate& fate, const Leaving& leaving,
                      double now_s) {
  PathServer server;
  server.offer = offer;
  server.asked_s = now_s;
  server.fate = fate;
  server.leaving = leaving;
  server.order = granted_++;
  bill_.open(offers_[offer].price_per_hour, now_s, fate.runs_s);
  events_.set(servers_.size(), server.next_s());
  servers_.push_back(server);
  count(offer, true);
}

void PathServers::start_work(std::size_t place) {
  servers_[place].works = true;
  events_.set(place, servers_[place].next_s());
}

void PathServers::set_gives_way(std::size_t place, bool gives_way) {
  PathServer& server = servers_[place];
  if (server.gives_way != gives_way) {
    server.gives_way = gives_way;
    count(server.offer, !gives_way);
  }
}

void PathServers::remove(std::size_t place, double now_s) {
  if (!servers_[place].gives_way) {
    count(servers_[place].offer, false);
  }
  bill_.close(place, now_s);
  servers_[place] = servers_.back();
  servers_.pop_back();
  events_.set(servers_.size(), kNever);
  if (place < servers_.size()) {
    events_.set(place, servers_[place].next_s());
  }
}

std::size_t PathServers::place_of(std::uint64_t serial) const {
  const auto found = std::ranges::find_if(
      servers_, [&](const PathServer& server) { return server.fate.serial == serial; });
  ENSURE(found != servers_.end(), "the server is there");
  return static_cast<std::size_t>(found - servers_.begin());
}

std::uint32_t PathServers::working(std::size_t offer) const {
  return static_cast<std::uint32_t>(std::ranges::count_if(
      servers_, [&](const PathServer& server) { return server.offer == offer && server.works; }));
}

}  // namespace mayfly::planner
