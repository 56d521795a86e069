#include "cloud_hooks/core/server_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace mayfly::cloud_hooks {

ServerChoice::ServerChoice(const ReplacementOptions& options, const OfferCatalog& catalog,
                           const Bill& bill, const Demand& demand, const Fleet& fleet)
    : options_(options), catalog_(catalog), bill_(bill), demand_(demand), fleet_(fleet) {}

std::vector<std::string> ServerChoice::least_wanted(Instant now, std::uint32_t count) const {
  std::vector<std::string> ids;
  const auto add = [&](std::uint32_t most, const IsAmong& is_among) {
    const auto left = static_cast<std::uint32_t>(count - ids.size());
    for (std::string& id : least_wanted_among(now, std::min(most, left), is_among)) {
      ids.push_back(std::move(id));
    }
  };
  if (catalog_.has_composition()) {
    const std::vector<std::uint32_t> wanted = demand_.composed();
    std::vector<std::size_t> offers(catalog_.size());
    std::iota(offers.begin(), offers.end(), 0);
    std::ranges::stable_sort(offers, std::greater<>{},
                             [this](std::size_t offer) { return catalog_.price_per_speed(offer); });
    add(count, [](const std::string&, const Fleet::Server& server) { return !server.offer; });
    for (const std::size_t offer : offers) {
      const std::uint32_t present = demand_.present(offer);
      add(present - std::min(present, wanted[offer]),
          [&](const std::string&, const Fleet::Server& server) { return server.offer == offer; });
    }
  }
  add(count, [&](const std::string& id, const Fleet::Server&) {
    return std::ranges::find(ids, id) == ids.end();
  });
  return ids;
}

std::vector<std::string> ServerChoice::least_wanted_among(Instant now, std::uint32_t count,
                                                          const IsAmong& is_among) const {
  struct Candidate {
    bool works;
    double price_per_speed;
    std::uint32_t order;
    bool is_on_demand;
    std::string id;
  };
  std::vector<Candidate> all;
  bool is_measured = false;
  for (const auto& [id, server] : fleet_.servers()) {
    if (may_be_given_up(server) && is_among(id, server)) {
      const double price =
          server.offer ? catalog_.price_per_speed(*server.offer) : fleet_.price_of(server);
      all.push_back({server.stage == Fleet::Stage::kWorking, price, server.order,
                     fleet_.is_on_demand(server), id});
      is_measured = is_measured || fleet_.measured_speed(server) > 0;
    }
  }
  std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    if (a.works != b.works) {
      return b.works;
    }
    return a.price_per_speed != b.price_per_speed ? a.price_per_speed > b.price_per_speed
                                                  : a.order > b.order;
  });
  const std::uint32_t floor = demand_.on_demand_floor();
  std::uint32_t on_demand = demand_.on_demand_present();
  std::vector<std::string> ids;
  for (const Candidate& candidate : all) {
    if (ids.size() == count || (candidate.works && is_measured)) {
      break;
    }
    if (candidate.is_on_demand) {
      if (on_demand <= floor) {
        continue;
      }
      --on_demand;
    }
    ids.push_back(candidate.id);
  }
  if (is_measured && ids.size() < count) {
    const std::size_t on_demand_most = on_demand > floor ? on_demand - floor : 0;
    for (std::string& id :
         least_missed_workers(now, count - ids.size(), on_demand_most, is_among)) {
      ids.push_back(std::move(id));
    }
  }
  return ids;
}

std::vector<std::string> ServerChoice::least_missed_workers(Instant now, std::size_t count,
                                                            std::size_t on_demand_most,
                                                            const IsAmong& is_among) const {
  std::vector<ServerWorth> worths;
  std::vector<std::string> ids;
  for (const auto& [id, server] : fleet_.servers()) {
    const bool computes = server.stage == Fleet::Stage::kWorking && server.member &&
                          (fleet_.measured_speed(server) > 0 || may_be_given_up(server));
    if (computes && !server.gives_way) {
      worths.push_back(worth_of(now, id, server));
      worths.back().may_go = worths.back().may_go && is_among(id, server);
      ids.push_back(id);
    }
  }
  std::vector<std::string> chosen;
  for (const std::size_t place :
       least_missed(worths, {count, on_demand_most, options_.microbatches})) {
    chosen.push_back(ids[place]);
  }
  return chosen;
}

ServerWorth ServerChoice::worth_of(Instant now, const std::string& id,
                                   const Fleet::Server& server) const {
  ServerWorth worth;
  worth.speed = fleet_.speed_of(server);
  if (options_.up_share && server.offer) {
    worth.up_share = options_.up_share(catalog_.terms(*server.offer).offer, now - server.born);
  }
  worth.price_per_hour = bill_.price_per_hour(id);
  worth.may_go = may_be_given_up(server);
  worth.is_on_demand = fleet_.is_on_demand(server);
  worth.order = server.order;
  return worth;
}

bool ServerChoice::may_be_given_up(const Fleet::Server& server) const {
  return server.stays() && !server.gives_way && !fleet_.is_irreplaceable(server) &&
         !fleet_.is_for_evaluator(server);
}

std::string ServerChoice::describe(Instant now, const std::vector<std::string>& ids) const {
  ServerWorth all;
  ServerWorth chosen;
  all.speed = chosen.speed = 0;
  std::size_t present = 0;
  for (const auto& [id, server] : fleet_.servers()) {
    if (!server.stays() || fleet_.is_for_evaluator(server)) {
      continue;
    }
    ++present;
    const ServerWorth worth = worth_of(now, id, server);
    for (ServerWorth* sum : {&all, &chosen}) {
      if (sum == &all || std::ranges::find(ids, id) != ids.end()) {
        sum->speed += server.stage == Fleet::Stage::kWorking ? worth.speed * worth.up_share : 0;
        sum->price_per_hour += worth.price_per_hour;
      }
    }
  }
  std::string names;
  for (const std::string& id : ids) {
    names += (names.empty() ? "" : ", ") + id + " (" + fleet_.describe(*fleet_.find(id)) + ")";
  }
  const auto percent = [](double part, double whole) {
    return whole > 0 ? fmt::format("{:.0f} %", 100 * part / whole) : std::string("none");
  };
  return fmt::format("{} with {} of the speed and {} of the price of {} servers", names,
                     percent(chosen.speed, all.speed),
                     percent(chosen.price_per_hour, all.price_per_hour), present);
}

}  // namespace mayfly::cloud_hooks
