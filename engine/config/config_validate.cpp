#include <algorithm>

#include "base/net/addresses.hpp"
#include "base/text.hpp"
#include "engine/config/derived_settings.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/config/setting_checks.hpp"

namespace mayfly::engine {
namespace {

/// Times are stored as nanoseconds, of which 64 bits hold 292 years, so a larger number for "never"
/// must be refused.
Complaint check_times(const JobConfig& c) {
  struct Time {
    const char* name;
    double value;
    bool may_be_none;
    double most;
    const char* unit;
  };
  for (const Time& time :
       {Time{"coordinator_timeout", c.coordinator_timeout, false, 1e9, "seconds"},
        Time{"min_workers_timeout", c.min_workers_timeout, false, 1e9, "seconds"},
        Time{"evict_stragglers_after", c.evict_stragglers_after, true, 1e9, "seconds"},
        Time{"checkpoint_minutes", c.checkpoint_minutes, true, 1e7, "minutes"},
        Time{"cloud_lifetime_hours", c.cloud_lifetime_hours, true, 1e5, "hours"},
        Time{"cloud_back_to_spot", c.cloud_back_to_spot, true, 1e9, "seconds"}}) {
    const bool is_enough = time.value > 0 || (time.may_be_none && time.value == 0);
    if (!is_enough || !(time.value <= time.most)) {
      return std::string(time.name) + " " + shortest_text(time.value) + " is not " +
             (time.may_be_none ? "between 0 and " : "above 0 and at most ") +
             shortest_text(time.most) + " " + time.unit;
    }
  }
  return std::nullopt;
}

Complaint check_records(const JobConfig& c) {
  if (!(c.price_per_hour >= 0 && c.price_per_hour <= 1e9)) {
    return "price_per_hour " + shortest_text(c.price_per_hour) + " is not between 0 and 1e9";
  }
  if (c.price_per_hour > 0 && !c.cloud_offers.empty()) {
    return "price_per_hour is for workers without cloud_offers, which have prices of their own";
  }
  if (c.keep_checkpoints < 1) {
    return "keep_checkpoints must be at least 1";
  }
  if (c.digest_every < 1) {
    return "digest_every must be at least 1";
  }
  if (const Result<TraceWindow> window = parse_trace_window(c.trace_steps); !window.ok()) {
    return window.error().detail;
  }
  return unless(
      c.eval_every_epochs >= 0,
      "eval_every_epochs " + shortest_text(c.eval_every_epochs) + " must not be negative");
}

}  // namespace

Complaint unless(bool fine, const std::string& text) {
  return fine ? Complaint() : Complaint(text);
}

Complaint one_of(const std::string& name, const std::string& text,
                 const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), text) != known.end()) {
    return {};
  }
  std::string list;
  for (const std::string& candidate : known) {
    list += (list.empty() ? "" : ", ") + candidate;
  }
  return name + " '" + text + "' is not known" + suggestion(text, known) + " (known: " + list + ")";
}

Complaint first_of(const JobConfig& c,
                   std::initializer_list<Complaint (*)(const JobConfig&)> checks) {
  for (const auto& check : checks) {
    if (Complaint complaint = check(c)) {
      return complaint;
    }
  }
  return {};
}

bool is_endpoint(const std::string& text) {
  const Result<Endpoint> endpoint = parse_endpoint(text);
  return endpoint.ok() && endpoint.value().port != 0;
}

Result<void> validate(const JobConfig& config) {
  const auto result_of = [](const Complaint& complaint) {
    return complaint ? Result<void>(Error{Errc::kInvalidInput, *complaint}) : Result<void>();
  };
  TRY(result_of(check_batches(config)));
  TRY(check_parameter_servers(config));
  return result_of(
      first_of(config, {check_training, check_workers, check_times, check_cloud, check_records}));
}

}  // namespace mayfly::engine
