#include "cloud_hooks/core/open_requests.hpp"

#include <algorithm>
#include <utility>

namespace mayfly::cloud_hooks {

OpenRequests::OpenRequests(const ReplacementOptions& options, OfferCatalog& catalog, Bill& bill,
                           ListSchedule& lists, EffectList& effects)
    : options_(options),
      catalog_(catalog),
      bill_(bill),
      lists_(lists),
      effects_(effects),
      random_(options.identity) {}

std::string OpenRequests::send(Instant now, std::size_t offer, std::uint32_t count,
                               Duration lifetime, std::optional<Instant> loss) {
  Open open;
  std::string id = make_request_id(random_, sent_++);
  // The mark is the end of the id, because the beginning may be part of a server's name.
  id.replace(id.size() - options_.job_mark.size(), std::string::npos, options_.job_mark);
  open.request.request_id = id;
  open.request.count = count;
  open.request.offer = catalog_.terms(offer).offer;
  open.request.labels = options_.labels;
  open.request.lifetime_max = lifetime;
  open.request.startup_text = options_.startup_text;
  open.offer = offer;
  open.sent = open.looked = now;
  bill_missing(open);
  effects_.add(policy_effect::Request{open.request, false, loss});
  open_.emplace(id, std::move(open));
  return id;
}

void OpenRequests::repeat(Instant now, bool may_repeat) {
  for (auto& [id, open] : open_) {
    if (!open.repeat_at) {
      continue;
    }
    if (!may_repeat) {  // but the provider may have received it
      leave_to_lists(now, open);
    } else if (*open.repeat_at <= now) {
      open.repeat_at.reset();
      effects_.add(policy_effect::Request{open.request, true, {}});
    }
  }
}

const OpenRequests::Open* OpenRequests::find(const std::string& id) const {
  const auto found = open_.find(id);
  return found == open_.end() ? nullptr : &found->second;
}

void OpenRequests::saw(const std::string& id, const std::string& server) {
  Open& open = open_.at(id);
  open.servers.insert(server);
  bill_missing(open);
}

// --- Answers ---

void OpenRequests::granted(Instant now, const std::string& id) {
  const Open& open = open_.at(id);
  if (open.missing() > 0) {
    (void)catalog_.out_of_stock(open.offer, now, {});
    effects_.note("server_refused", "fewer servers granted than requested of " + describe(open));
  }
  forget(id);
}

void OpenRequests::refused(Instant now, const std::string& id, const ProviderError& error,
                           bool quota_is_ours) {
  const Open& open = open_.at(id);
  effects_.note("server_refused",
                std::string(to_string(error.kind)) + ": " + describe(open) + ": " + error.detail);
  switch (error.kind) {
    case ProviderErrorKind::kCapacity: (void)catalog_.out_of_stock(open.offer, now, error); break;
    case ProviderErrorKind::kQuota: quota_refused(now, open, error, quota_is_ours); break;
    case ProviderErrorKind::kAuth:
    case ProviderErrorKind::kConfig:
      catalog_.stop(open.offer);
      effects_.note("offer_stopped", describe(open) +
                                         ": not requested again until `mayfly scale`; `mayfly "
                                         "cloud doctor` may show what is missing");
      break;
    case ProviderErrorKind::kRate: break;
  }
  forget(id);
}

/// Some providers refuse all servers of a request if the quota does not suffice for each of them.
void OpenRequests::quota_refused(Instant now, const Open& open, const ProviderError& error,
                                 bool is_ours) {
  if (open.servers.empty() && open.request.count > 1) {
    catalog_.quota_refused(open.offer, open.request.count);
  } else if (!is_ours) {  // other users of the quota do not report when they end
    catalog_.quota_freed(open.offer);
    (void)catalog_.out_of_stock(open.offer, now, error);
  } else if (catalog_.quota_reached(open.offer)) {
    effects_.note("offer_stopped", describe(open) +
                                       ": the quota is reached; requested again when a server of "
                                       "its kind has ended, or after `mayfly scale`");
  }
}

void OpenRequests::unanswered(Instant now, const std::string& id, const ProviderError& error,
                              bool may_repeat) {
  Open& open = open_.at(id);
  if (open.unsettled) {
    return;
  }
  if (open.repeats == 0) {
    effects_.note("server_refused", "rate: " + describe(open) + ": " + error.detail +
                                        "; the same request will be repeated");
  }
  if (open.repeats >= options_.repeats_max || !may_repeat) {
    leave_to_lists(now, open);
    (void)catalog_.out_of_stock(open.offer, now, error);
    effects_.note(
        "server_refused",
        describe(open) + ": no answer; the list of servers will show the result of the request");
    return;
  }
  const Duration wait = repetition_wait(options_, open.repeats++);
  open.repeat_at = now + std::max(wait, std::min(error.retry_after.value_or(Duration(0)),
                                                 options_.retry_after_max()));
}

void OpenRequests::settle() {
  for (auto& [id, open] : open_) {
    open.unseen = std::max(open.unseen, lists_.requested_at() - open.looked);
    open.looked = std::max(open.looked, lists_.requested_at());
  }
  std::erase_if(open_, [this](const auto& entry) {
    const Open& open = entry.second;
    const bool is_settled = open.unsettled && lists_.proves_absence(*open.unsettled);
    if (is_settled && open.missing() > 0) {
      const Duration existed =
          std::min(open.unseen + options_.absence_grace, lists_.requested_at() - open.sent);
      const double cost = bill_.close_unseen(billing_item(open), existed);
      effects_.note("request_given_up",
                    describe(open) + ": " + std::to_string(open.missing()) +
                        " of its servers were never seen; they count as billed for as long as they "
                        "may have existed between two lists",
                    cost);
    }
    return is_settled;
  });
}

void OpenRequests::leave_to_lists(Instant now, Open& open) {
  open.repeat_at.reset();
  open.unsettled = now;
  lists_.ask_by(now + options_.absence_grace);
}

void OpenRequests::forget(const std::string& id) {
  const auto found = open_.find(id);
  bill_.drop(billing_item(found->second));
  open_.erase(found);
}

void OpenRequests::bill_missing(const Open& open) {
  bill_.drop(billing_item(open));
  if (open.missing() > 0) {
    bill_.open(billing_item(open), catalog_.terms(open.offer).price_per_hour * open.missing(),
               open.sent);
  }
}

// --- Open requests ---

bool OpenRequests::may_send() const {
  const auto awaited = std::ranges::count_if(
      open_, [](const auto& entry) { return !entry.second.repeat_at && !entry.second.unsettled; });
  return options_.requests_at_once == 0 || std::cmp_less(awaited, options_.requests_at_once);
}

std::uint32_t OpenRequests::coming(bool for_evaluators) const {
  std::uint32_t count = 0;
  for (const auto& [id, open] : open_) {
    count += is_for_evaluators(open) == for_evaluators ? open.coming() : 0;
  }
  return count;
}

std::uint32_t OpenRequests::coming_of(std::size_t offer) const {
  std::uint32_t count = 0;
  for (const auto& [id, open] : open_) {
    count += open.offer == offer ? open.coming() : 0;
  }
  return count;
}

bool OpenRequests::may_bring_worker() const {
  return std::ranges::any_of(open_, [this](const auto& entry) {
    const Open& open = entry.second;  // may be open although all of its servers are known
    return open.missing() > 0 && !is_for_evaluators(open);
  });
}

std::optional<Instant> OpenRequests::next_repeat() const {
  std::optional<Instant> next;
  for (const auto& [id, open] : open_) {
    next = open.repeat_at ? std::min(*open.repeat_at, next.value_or(*open.repeat_at)) : next;
  }
  return next;
}

std::string OpenRequests::billing_item(const Open& open) {
  return "request " + open.request.request_id;
}

std::string OpenRequests::describe(const Open& open) const {
  return to_string(catalog_.terms(open.offer).offer);
}

bool OpenRequests::is_for_evaluators(const Open& open) const {
  return catalog_.terms(open.offer).for_evaluator;
}

}  // namespace mayfly::cloud_hooks
