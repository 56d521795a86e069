#include "engine/cloud/cloud_events.hpp"

#include <fmt/format.h>

#include <utility>

#include "engine/run/record_json.hpp"

namespace mayfly::engine {
namespace {

bool is_shown(const std::string& kind) {
  return kind != "cost" && kind != "server_joined" && kind != "server_released";
}

}  // namespace

Fact CloudEvents::event_of(const cloud_hooks::CloudFact& fact) {
  Fact event{fact.kind, {}, {}};
  for (const auto& [name, text] :
       {std::pair("detail", &fact.detail), std::pair("server", &fact.server),
        std::pair("request", &fact.request_id)}) {
    if (!text->empty()) {
      event.fields[name] = *text;
    }
  }
  for (const auto& [name, number] :
       {std::pair("ms", fact.ms), std::pair("decided_ms", fact.decided_ms),
        std::pair("cost", fact.cost)}) {
    if (number) {
      event.fields[name] = *number;
    }
  }
  if (fact.all) {
    event.fields["staying"] = fact.all->staying;
    event.fields["coming"] = fact.all->coming;
    event.fields["billing"] = fact.all->billing;
    event.fields["spent"] = fact.all->spent;
    event.fields["per_hour"] = fact.all->per_hour;
  }
  if (is_shown(fact.kind) && is_news(fact)) {
    const std::string server = fact.server.empty() ? "" : " " + fact.server;
    event.line = fmt::format("{}{}: {}", fact.kind, server, fact.detail);
  }
  return event;
}

bool CloudEvents::is_news(const cloud_hooks::CloudFact& fact) {
  const std::lock_guard lock(mutex_);
  if (fact.kind == "server_granted") {
    last_details_.clear();
    return true;
  }
  const bool is_failed_release = fact.kind == "release_failed";
  const bool comes_again = fact.kind == "server_requested" || fact.kind == "server_refused" ||
                           fact.kind == "offers_exhausted" || is_failed_release;
  const std::string series = fact.kind + (is_failed_release ? " " + fact.server : "");
  return !comes_again || std::exchange(last_details_[series], fact.detail) != fact.detail;
}

}  // namespace mayfly::engine
