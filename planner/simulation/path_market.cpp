#include "planner/simulation/path_market.hpp"

#include <algorithm>

namespace mayfly::planner {

PathMarket::PathMarket(const Market& market, const JobModel& job, const CandidateOffers& offers)
    : market_(market), job_(job), offers_(offers) {
  for (std::size_t offer = 0; offer < offers_.size(); ++offer) {
    const std::size_t zone = offers_[offer].zone;
    if (is_spot(offers_[offer]) && !market_.zones.at(zone).shocks.is_calm() &&
        std::ranges::find(zones_, zone) == zones_.end()) {
      zones_.push_back(zone);
    }
  }
}

void PathMarket::begin(const PathDraws& draws) {
  draws_ = draws;
  shocks_.clear();
  for (const std::size_t zone : zones_) {
    shocks_.push_back(draws_.shocks(market_.zones[zone], zone));
  }
  requests_.assign(offers_.size(), 0);
  grants_.assign(offers_.size(), 0);
  out_until_s_.assign(offers_.size(), 0);
}

bool PathMarket::refuses(std::size_t offer, double now_s) {
  if (now_s < out_until_s_[offer]) {
    return true;
  }
  const auto out = draws_.stock_out(offers_[offer], offers_.number(offer), requests_[offer]++);
  out_until_s_[offer] = now_s + out.value_or(0);
  return out.has_value();
}

ServerFate PathMarket::grant(std::size_t offer, double now_s) {
  return draws_.server(offers_[offer], offers_.number(offer), grants_[offer]++, now_s, job_);
}

std::size_t PathMarket::next_zone() const {
  std::size_t next = shocks_.size();
  double at_s = kNever;
  for (std::size_t i = 0; i < shocks_.size(); ++i) {
    if (shocks_[i].next().at_s < at_s) {
      at_s = shocks_[i].next().at_s;
      next = i;
    }
  }
  return next;
}

double PathMarket::next_shock_s() const {
  const std::size_t next = next_zone();
  return next < shocks_.size() ? shocks_[next].next().at_s : kNever;
}

PathMarket::ZoneShock PathMarket::take_shock() {
  const std::size_t next = next_zone();
  const ZoneShock taken{shocks_.at(next).next(), zones_[next]};
  shocks_[next].pop();
  return taken;
}

bool PathMarket::is_taken(const ZoneShock& by, std::size_t offer, const ServerFate& fate,
                          double now_s) const {
  return offers_[offer].zone == by.zone && is_spot(offers_[offer]) && fate.runs_s <= now_s &&
         draws_.is_taken(by.shock, by.zone, fate.serial);
}

}  // namespace mayfly::planner
