#include "cloud_hooks/core/list_schedule.hpp"

#include <algorithm>
#include <utility>

namespace mayfly::cloud_hooks {
namespace {

constexpr Duration kFirstListMax = seconds(120);

}  // namespace

void ListSchedule::begin(Instant now) {
  begun_ = now;
  knows_earlier_servers_ = !options_.provider.survives_us;
  due_ = knows_earlier_servers_ ? now + options_.list_every : now;
}

void ListSchedule::ask_by(Instant moment) {
  due_ = std::min(due_, moment);
}

bool ListSchedule::ask(Instant now) {
  if (due_ > now || awaits_list_) {
    return false;
  }
  awaits_list_ = true;
  requested_at_ = now;
  return true;
}

std::optional<Instant> ListSchedule::next() const {
  return awaits_list_ ? std::nullopt : std::optional(due_);
}

void ListSchedule::listed(Instant now, Duration until_next) {
  awaits_list_ = false;
  is_hopeless_ = false;
  error_.reset();
  due_ = now + until_next;
  // Requests that an earlier process sent just before it ended may appear in lists only later.
  const Duration unsure = options_.restarted ? options_.absence_grace : Duration(0);
  knows_earlier_servers_ = knows_earlier_servers_ || requested_at_ >= begun_ + unsure;
  if (!knows_earlier_servers_) {
    ask_by(begun_ + unsure);
  }
}

bool ListSchedule::failed(Instant now, const ProviderError& error) {
  awaits_list_ = false;
  due_ = now + std::max(options_.list_every, error.retry_after.value_or(Duration(0)));
  const bool is_refused =
      error.kind == ProviderErrorKind::kAuth || error.kind == ProviderErrorKind::kConfig;
  is_hopeless_ = is_hopeless_ || (!knows_earlier_servers_ && !options_.restarted &&
                                  (is_refused || now >= begun_ + kFirstListMax));
  return std::exchange(error_, error.kind) != error.kind;
}

}  // namespace mayfly::cloud_hooks
