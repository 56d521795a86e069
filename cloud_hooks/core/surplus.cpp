#include "cloud_hooks/core/surplus.hpp"

#include <set>
#include <utility>

namespace mayfly::cloud_hooks {

Surplus::Surplus(const ReplacementOptions& options, OfferCatalog& catalog, const Bill& bill,
                 const Budget& budget, const Demand& demand, Shortage& shortage,
                 EffectList& effects, Fleet& fleet)
    : options_(options),
      catalog_(catalog),
      bill_(bill),
      budget_(budget),
      demand_(demand),
      shortage_(shortage),
      effects_(effects),
      fleet_(fleet),
      choice_(options, catalog, bill, demand, fleet) {}

void Surplus::scaled(std::uint32_t before, std::uint32_t target) {
  shrinks_ = target < before || (shrinks_ && target == before);
}

void Surplus::keep_target(Instant now) {
  const std::uint32_t staying = demand_.staying();
  const std::uint32_t with_coming = demand_.staying_or_coming();
  if (staying <= demand_.target()) {
    since_.reset();
    shrinks_ = shrinks_ && with_coming > demand_.target();
    return;
  }
  since_ = since_.value_or(now);
  const bool at_once = shrinks_ || with_coming > options_.max;
  if (!at_once && now < *since_ + options_.surplus_patience) {
    return;
  }
  const std::uint32_t surplus = staying - demand_.target();
  const std::vector<std::string> ids = choice_.least_wanted(now, surplus);
  give_up(now, ids, "more servers than needed");
  // The rest of the surplus are workers that were started by hand.
  fleet_.drain_without_server(surplus - static_cast<std::uint32_t>(ids.size()));
  since_ = now;  // servers that cannot be given up now are checked again later
}

void Surplus::keep_hourly_budget(Instant now) {
  double excess = budget_.hourly_excess();
  for (const auto& [id, server] : fleet_.servers()) {  // ending ones are not billed for long
    excess -= server.is_ending() ? bill_.price_per_hour(id) : 0;
  }
  std::vector<std::string> ids;
  double saved = 0;
  for (std::uint32_t count = 1; saved < excess; ++count) {
    std::vector<std::string> more = choice_.least_wanted(now, count);
    if (more.size() < count) {
      return;  // giving up all that may go would not suffice
    }
    ids = std::move(more);
    saved = 0;
    for (const std::string& id : ids) {
      saved += bill_.price_per_hour(id);
    }
  }
  give_up(now, ids, "the hourly budget does not allow it any more");
}

void Surplus::give_back(Instant now, std::uint32_t count, const std::string& why) {
  if (count == 0) {
    return;
  }
  const std::vector<std::string> ids = choice_.least_wanted(now, count);
  std::set<std::size_t> offers;
  for (const std::string& id : ids) {
    if (const std::optional<std::size_t> offer = fleet_.find(id)->offer) {
      offers.insert(*offer);
    }
  }
  for (const std::size_t offer : offers) {
    (void)catalog_.out_of_stock(offer, now, {});
  }
  if (!ids.empty()) {
    shortage_.noticed(now);
  }
  give_up(now, ids, why);
}

std::optional<Instant> Surplus::next_wake() const {
  return since_ ? std::optional(*since_ + options_.surplus_patience) : std::nullopt;
}

void Surplus::give_up(Instant now, const std::vector<std::string>& ids, const std::string& why) {
  if (ids.empty()) {
    return;
  }
  effects_.note("servers_chosen", choice_.describe(now, ids) + ": " + why);
  for (const std::string& id : ids) {
    fleet_.note("server_given_up", id, fleet_.describe(*fleet_.find(id)) + ": " + why);
    fleet_.let_go(now, id);
  }
}

}  // namespace mayfly::cloud_hooks
