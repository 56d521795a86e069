#include "cloud_hooks/core/replacement_policy.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "cloud_hooks/core/provider.hpp"
#include "cloud_hooks/core/replacement_parts.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr const char* kEarlierServers = "of earlier processes";  // on the bill until the first list
constexpr Duration kShortestWait = milliseconds(1);

}  // namespace

ReplacementPolicy::ReplacementPolicy(ReplacementOptions wanted)
    : parts_(std::make_unique<ReplacementParts>(std::move(wanted))) {
  const ReplacementOptions& options = parts_->options;
  ENSURE(!options.offers.empty(), "there is at least one offer");
  ENSURE(options.provider.count_max > 0, "a request is for at least one server");
  ENSURE(options.max > 0, "a job has a worker");
  ENSURE(!parts_->catalog.has_composition() || options.on_demand_floor == 0,
         "a composition determines which servers are on demand");
  const auto is_for_evaluator = [](const OfferTerms& terms) { return terms.for_evaluator; };
  ENSURE(!std::ranges::all_of(options.offers, is_for_evaluator), "workers need an offer");
  ENSURE(options.evaluators == 0 || std::ranges::any_of(options.offers, is_for_evaluator),
         "evaluators that are counted apart have an offer");
}

ReplacementPolicy::~ReplacementPolicy() = default;
ReplacementPolicy::ReplacementPolicy(ReplacementPolicy&&) noexcept = default;
ReplacementPolicy& ReplacementPolicy::operator=(ReplacementPolicy&&) noexcept = default;

std::vector<PolicyEffect> ReplacementPolicy::handle(Instant now, const PolicyEvent& event) {
  std::visit([&](const auto& e) { on(now, e); }, event);
  plan(now);
  wake_ = find_next_wake(now);
  return parts_->effects.take();
}

// --- The job ---

void ReplacementPolicy::on(Instant now, const policy_event::Begin&) {
  if (parts_->options.restarted) {
    parts_->bill.open(kEarlierServers, parts_->options.per_hour_before, now);
  }
  parts_->lists.begin(now);
}

void ReplacementPolicy::on(Instant, const policy_event::Tick&) {}

void ReplacementPolicy::on(Instant, const policy_event::Scaled& event) {
  const std::uint32_t before = parts_->demand.target();
  parts_->demand.set_target(event.target);
  parts_->surplus.scaled(before, parts_->demand.target());
  parts_->catalog.forgive();
  parts_->shortage.changed();
}

void ReplacementPolicy::on(Instant now, const policy_event::WantedBack& event) {
  give_back(now, event.count, "an operator gave up " + std::to_string(event.count));
}

void ReplacementPolicy::on(Instant, const policy_event::Closing&) {
  is_closing_ = true;
}

void ReplacementPolicy::on(Instant now, const policy_event::Ended&) {
  is_closing_ = ended_ = true;
  parts_->lists.ask_by(now);
}

// --- The provider ---

void ReplacementPolicy::on(Instant now, const policy_event::Answered& event) {
  parts_->lifecycle.answered(now, event.request_id, event.outcome);
  const OpenRequests::Open* const request = parts_->requests.find(event.request_id);
  const std::optional<ProviderError>& error = event.outcome.error;
  if (request == nullptr) {
    return;  // answered, or given up and settled by a list, long ago
  }
  if (!error) {
    parts_->requests.granted(now, event.request_id);
  } else if (error->kind == ProviderErrorKind::kRate) {
    parts_->requests.unanswered(now, event.request_id, *error, !is_closing_);
  } else {
    parts_->requests.refused(now, event.request_id, *error,
                             parts_->fleet.uses_quota_of(request->offer));
  }
}

void ReplacementPolicy::on(Instant now, const policy_event::Listed& event) {
  if (!event.answer.ok()) {
    const ProviderError& error = event.answer.error();
    const std::string why = std::string(to_string(error.kind)) + ": " + error.detail;
    const bool had_hope = !parts_->lists.is_hopeless();
    const bool is_news = parts_->lists.failed(now, error);
    if (had_hope && parts_->lists.is_hopeless()) {
      parts_->effects.note("no_server_starts",
                           "the provider does not list the servers of this job: " + why);
    } else if (is_news) {
      parts_->effects.note("list_failed", why + (parts_->lists.knows_earlier_servers()
                                                     ? ""
                                                     : "; no server is requested before a list "
                                                       "has arrived"));
    }
    return;
  }
  (void)parts_->bill.close(kEarlierServers, now);
  parts_->lifecycle.reconcile(now, event.answer.value());
  parts_->lists.listed(now, parts_->fleet.has_unlisted_loss() ? parts_->options.rate_wait
                                                              : parts_->options.list_every);
  parts_->fleet.wait_anew_for_silent(now);
  give_back(now, event.wanted_back - std::min(event.wanted_back, parts_->fleet.ending()),
            "the provider wants " + std::to_string(event.wanted_back) + " back");
}

void ReplacementPolicy::on(Instant now, const policy_event::ReleaseAnswered& event) {
  if (parts_->fleet.find(event.server) == nullptr) {
    return;
  }
  if (!event.error) {
    parts_->lists.ask_by(now + parts_->options.rate_wait);
    return;
  }
  const ProviderError& error = *event.error;
  parts_->fleet.note("release_failed", event.server,
                     std::string(to_string(error.kind)) + ": " + error.detail);
  parts_->fleet.release_again(
      now, event.server,
      std::min(error.retry_after.value_or(Duration(0)), parts_->options.retry_after_max()));
}

// --- The members ---

void ReplacementPolicy::on(Instant now, const policy_event::Joined& event) {
  const Fleet::Server* const server = parts_->fleet.joined(now, event.member, event.server);
  if (server != nullptr && server->offer) {
    parts_->catalog.worked(*server->offer);
  }
}

void ReplacementPolicy::on(Instant, const policy_event::Irreplaceable& event) {
  parts_->fleet.irreplaceable(event.member);
}

void ReplacementPolicy::on(Instant now, const policy_event::Leaving& event) {
  if (parts_->fleet.leaving(now, event.member)) {
    parts_->shortage.noticed(now);
  }
}

void ReplacementPolicy::on(Instant now, const policy_event::Gone& event) {
  const std::optional<Fleet::Loss> loss = parts_->fleet.gone(now, event.member, is_closing_);
  if (!loss) {
    return;
  }
  if (!loss->was_announced) {
    parts_->shortage.noticed(now);
  }
  if (loss->offer) {
    parts_->shortage.lost_worker_of(*loss->offer);
  }
  if (loss->may_concern_server) {
    parts_->lists.ask_by(now);
  }
}

void ReplacementPolicy::on(Instant, const policy_event::Measured& event) {
  if (const auto offer = parts_->fleet.measured(event.member, event.speed)) {
    parts_->catalog.measured(*offer, event.speed);
  }
}

// --- Decisions ---

void ReplacementPolicy::plan(Instant now) {
  watch_budget(now);
  parts_->lifecycle.watch(now);
  if (ended_ || parts_->budget.is_over()) {
    parts_->fleet.release_all(now);
  } else if (is_closing_) {
    parts_->fleet.release_unused(now);
  }
  parts_->requests.repeat(now, may_request());
  if (parts_->exchange.is_under_way()) {
    parts_->exchange.watch(now, may_request());
  } else if (may_exchange()) {
    parts_->exchange.begin(now);
  }
  if (is_closing_) {
    parts_->surplus.end();
  } else {
    parts_->surplus.keep_target(now);
    if (!parts_->exchange.is_under_way()) {
      parts_->surplus.keep_hourly_budget(now);
    }
  }
  if (may_request()) {
    parts_->provisioner.request_missing(now, parts_->lists.knows_earlier_servers());
  } else {
    parts_->shortage.over();
  }
  if (!settled() && parts_->lists.ask(now)) {
    parts_->effects.add(policy_effect::List{});
  }
}

void ReplacementPolicy::watch_budget(Instant now) {
  if (!ended_ && parts_->budget.must_stop(now)) {
    parts_->effects.note(
        "budget",
        "the budget is nearly used up: the job stops with a checkpoint, then every "
        "server is released");
    parts_->effects.add(policy_effect::StopJob{"the budget is used up"});
  }
}

void ReplacementPolicy::give_back(Instant now, std::uint32_t count, const std::string& why) {
  if (!is_closing_) {
    parts_->surplus.give_back(now, count, why);
  }
}

bool ReplacementPolicy::may_request() const {
  return !is_closing_ && !parts_->budget.is_stopped();
}

/// An exchange begins only when no loss waits for its replacement.
bool ReplacementPolicy::may_exchange() const {
  return may_request() && parts_->lists.knows_earlier_servers() && !parts_->shortage.first_loss();
}

std::optional<Instant> ReplacementPolicy::find_next_wake(Instant now) const {
  std::optional<Instant> next;
  const auto consider = [&](std::optional<Instant> moment) {
    if (moment) {
      const Instant later = std::max(*moment, now + kShortestWait);
      next = std::min(later, next.value_or(later));
    }
  };
  consider(parts_->fleet.next_deadline());
  consider(parts_->requests.next_repeat());
  consider(parts_->surplus.next_wake());
  consider(parts_->provisioner.next_wake(now));
  if (parts_->exchange.is_under_way() || may_exchange()) {
    consider(parts_->exchange.next_wake(now));
  }
  if (!settled()) {
    consider(parts_->lists.next());
  }
  if (!ended_) {
    consider(parts_->budget.next_alarm(now));
  }
  return next;
}

// --- Published state ---

bool ReplacementPolicy::settled() const {
  // A job that could not begin has requested nothing.
  return ended_ && (parts_->lists.knows_earlier_servers() || parts_->lists.is_hopeless()) &&
         parts_->fleet.servers().empty() && parts_->requests.empty();
}

PolicyStatus ReplacementPolicy::status(Instant now) const {
  PolicyStatus status;
  status.target = parts_->demand.target();
  status.staying = parts_->fleet.staying();
  status.coming = parts_->requests.coming_for_workers();
  status.billing = static_cast<std::uint32_t>(parts_->fleet.servers().size());
  status.spent = parts_->bill.spent(now);
  status.per_hour = parts_->bill.per_hour();
  status.no_worker_comes = parts_->lists.is_hopeless() || (parts_->catalog.no_worker_offer_left() &&
                                                           !parts_->requests.may_bring_worker() &&
                                                           !parts_->fleet.may_bring_worker());
  return status;
}

Composition ReplacementPolicy::composition(Instant now) const {
  Composition all;
  all.is_settled = parts_->requests.empty() && !parts_->exchange.is_under_way() &&
                   parts_->demand.staying() == parts_->demand.target();
  for (const auto& [id, server] : parts_->fleet.servers()) {
    const bool works = server.stage == Fleet::Stage::kWorking;
    all.is_settled = all.is_settled && works;
    if (works && server.offer && !parts_->fleet.is_for_evaluator(server) &&
        !parts_->fleet.is_irreplaceable(server)) {
      all.working.push_back({parts_->catalog.terms(*server.offer).offer,
                             parts_->bill.price_per_hour(id), parts_->fleet.speed_of(server),
                             parts_->catalog.is_measured(*server.offer), now - server.born});
    }
  }
  for (const std::size_t offer : parts_->catalog.ranking(now)) {
    const OfferTerms& terms = parts_->catalog.terms(offer);
    if (!terms.for_evaluator && parts_->provisioner.affordable(now, offer, 1) > 0) {
      all.next = {terms.offer, terms.price_per_hour, parts_->catalog.speed(offer),
                  parts_->catalog.is_measured(offer), Duration(0)};
      break;
    }
  }
  return all;
}

}  // namespace mayfly::cloud_hooks
