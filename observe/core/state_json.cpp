// The state of a run in the form for the page. Its field names are those of docs/dashboard.md.

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "observe/core/records_json.hpp"
#include "observe/core/run_fold.hpp"

namespace mayfly::observe {

namespace json = boost::json;

namespace {

constexpr std::size_t kSpeedsMax = 2'000;   // of each member, the newest
constexpr std::size_t kEventsMax = 20'000;  // the newest; their number is in the state

json::value optional_number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? json::value(*value) : json::value(nullptr);
}

json::array ids_of(const std::vector<std::uint64_t>& members) {
  json::array ids;
  for (const std::uint64_t member : members) {
    ids.push_back(member);
  }
  return ids;
}

/// Adds the content of members.jsonl: the speed at each change, and the steps and samples up to the
/// last measure.
void add_measures(json::object& out, const std::vector<MemberMeasure>& measures) {
  json::array speeds;
  for (std::size_t i = measures.size() - std::min(measures.size(), kSpeedsMax); i < measures.size();
       ++i) {
    if (measures[i].microbatch_ms > 0) {
      speeds.push_back({measures[i].t, measures[i].microbatch_ms, measures[i].microbatches});
    }
  }
  out["speeds"] = std::move(speeds);
  if (!measures.empty()) {
    out["steps"] = measures.back().steps;
    out["samples"] = measures.back().samples;
  }
}

json::value lane_of(const Members& members, const MemberLane& lane) {
  json::array spans;
  for (const MemberSpan& span : lane.spans) {
    spans.push_back({span.from, optional_number(span.to), name_of(span.phase)});
  }
  json::object out = {{"member", lane.member}, {"host", lane.host}, {"spans", spans}};
  add_measures(out, members.measures_of(lane));
  if (!lane.end.empty()) {
    out["end"] = lane.end;
    out["end_t"] = lane.end_t;
    out["end_step"] = lane.end_step ? json::value(*lane.end_step) : json::value(nullptr);
    out["detail"] = lane.detail;
  }
  return out;
}

json::value lane_of(const ServerLane& lane) {
  return json::object{{"server", lane.server},
                      {"offer", lane.offer},
                      {"asked", lane.asked},
                      {"granted", optional_number(lane.granted)},
                      {"joined", optional_number(lane.joined)},
                      {"ended", optional_number(lane.ended)},
                      {"end", lane.end},
                      {"detail", lane.detail},
                      {"cost", optional_number(lane.cost)},
                      {"price", optional_number(lane.price)},
                      {"on_demand_price", optional_number(lane.on_demand_price)}};
}

json::value recovery_of(const RecoveryFact& r) {
  return json::object{{"detected", r.detected},
                      {"told", r.told},
                      {"stopped", r.stopped},
                      {"formed", r.formed},
                      {"synced", r.synced},
                      {"first_step", r.step},
                      {"cause", r.cause},
                      {"members", ids_of(r.members)},
                      {"step", r.committed},
                      {"view", r.view},
                      {"redone_microbatches", r.redone_microbatches},
                      {"detail", r.detail}};
}

json::value event_of(const EventFact& event) {
  json::object out = {{"t", event.t}, {"kind", event.kind}};
  if (event.member) {
    out["member"] = *event.member;
  }
  if (event.step) {
    out["step"] = *event.step;
  }
  if (!event.detail.empty()) {
    out["detail"] = event.detail;
  }
  return out;
}

template <typename List, typename Make>
json::array array_of(const List& list, Make make) {
  json::array out;
  for (const auto& one : list) {
    out.push_back(make(one));
  }
  return out;
}

}  // namespace

class StateWriter {
 public:
  explicit StateWriter(const RunFold& fold) : fold_(fold) {}

  [[nodiscard]] std::string write(const std::string& name) const {
    json::object settings;
    for (const auto& [key, value] : fold_.settings_) {
      settings[key] = value;
    }
    const auto first_event = fold_.events_.size() - std::min(fold_.events_.size(), kEventsMax);
    json::object out = {
        {"name", name},
        {"origin", fold_.origin_.value_or(0)},
        {"end", fold_.end()},
        {"settings", settings},
        {"head", head()},
        {"members", array_of(fold_.members_.lanes(),
                             [this](const auto& l) { return lane_of(fold_.members_, l); })},
        {"recoveries", array_of(fold_.recoveries_, recovery_of)},
        {"spans", spans()},
        {"servers", array_of(fold_.servers_.lanes(), [](const auto& l) { return lane_of(l); })},
        {"money", array_of(fold_.servers_.points(),
                           [](const MoneyPoint& p) {
                             return json::value{p.t, p.spent, p.per_hour, p.billing};
                           })},
        {"evaluations", array_of(fold_.evaluations_,
                                 [](const EvaluationFact& e) {
                                   return json::object{{"t", e.t},
                                                       {"step", e.step},
                                                       {"top1", e.top1},
                                                       {"loss", optional_number(e.loss)},
                                                       {"undone", e.undone}};
                                 })},
        {"checkpoints",
         array_of(fold_.checkpoints_,
                  [](const CheckpointFact& c) {
                    return json::object{
                        {"t", c.t}, {"step", c.step}, {"what", c.what}, {"detail", c.detail}};
                  })},
        {"time", array_of(fold_.time_shares(),
                          [](const TimeShare& share) {
                            return json::value{share.kind, share.seconds};
                          })},
        {"profile", profile()},
        {"first_event", first_event},
        {"damaged", {{"lines", fold_.damaged_}, {"first", fold_.first_damaged_}}},
    };
    json::array events;
    for (std::size_t i = first_event; i < fold_.events_.size(); ++i) {
      events.push_back(event_of(fold_.events_[i]));
    }
    out["events"] = std::move(events);
    return json::serialize(out);
  }

 private:
  [[nodiscard]] json::object head() const {
    const Curves& curves = fold_.kept_;
    json::object head = {{"rows", curves.rows()},
                         {"undone_rows", fold_.undone_.rows()},
                         {"undone_steps", fold_.undone_steps_},
                         {"members", fold_.members_.active()},
                         {"parts", fold_.parts_.size()},
                         {"last_event", fold_.last_event_}};
    if (curves.rows() > 0) {
      head["step"] = curves.step(curves.rows() - 1);
      head["total"] = optional_number(total_steps());
    }
    const std::vector<MoneyPoint>& money = fold_.servers_.points();
    if (!money.empty()) {
      head["spent"] = fold_.servers_.spent(fold_.end());
      head["per_hour"] = money.back().per_hour;
      head["on_demand"] = optional_number(fold_.servers_.on_demand_cost(fold_.end()));
    }
    head["workers_wanted"] = fold_.workers_wanted();
    head["phase"] = fold_.phase();
    if (const std::optional<json::object> summary = parse_object(fold_.summary_)) {
      json::object shown;
      for (const char* name :
           {"outcome", "detail", "steps", "samples", "undone_samples", "retried_steps",
            "final_digest", "test_top1", "test_loss", "images_per_second", "train_seconds",
            "data_wait_seconds", "membership_changes", "cost", "version", "isa", "device"}) {
        const json::value* field = summary->if_contains(name);
        if (field != nullptr && (field->is_number() || field->is_string())) {
          shown[name] = field->is_string() ? json::value(cut(field->get_string())) : *field;
        }
      }
      head["summary"] = std::move(shown);
    }
    return head;
  }

  /// First and last step, milliseconds of a step by kind, and the member that was ready last most
  /// often.
  [[nodiscard]] static json::value stretch_of(const StepProfile::Stretch& stretch) {
    json::array out = {stretch.first, stretch.last};
    for (const double seconds : stretch.seconds) {
      out.push_back(std::round(1e6 * seconds / static_cast<double>(stretch.steps)) / 1000);
    }
    out.push_back(stretch.slowest());
    return out;
  }

  /// The division of the time of steps that `mayfly profile` prints.
  [[nodiscard]] json::object profile() const {
    const StepProfile& profile = fold_.step_profile();
    json::array kinds;
    for (std::size_t part = 0; part < kStepParts; ++part) {
      kinds.push_back(json::value{kStepPartNames[part], profile.seconds()[part]});
    }
    json::array slowest;
    for (const auto& [member, last] : profile.slowest()) {
      slowest.push_back(json::value{member, last.steps, last.until_ready()});
    }
    json::array held_up;
    for (const auto& [member, held] : profile.held_up()) {
      held_up.push_back(json::value{member, held.steps, held.seconds});
    }
    return {{"steps", profile.steps()},
            {"kinds", std::move(kinds)},
            {"stretches", array_of(profile.stretches(), stretch_of)},
            {"slowest", std::move(slowest)},
            {"held_up", std::move(held_up)}};
  }

  [[nodiscard]] json::array spans() const {
    const auto shown = [](const JobSpan& s) {
      return json::value{s.from, optional_number(s.to), s.kind, s.detail};
    };
    json::array all = array_of(fold_.spans(), shown);
    for (const JobSpan& pause : fold_.pauses_of_steps()) {
      all.push_back(shown(pause));
    }
    return all;
  }

  /// The setting if there is one; otherwise computed from the epochs, whose length follows from the
  /// last row.
  [[nodiscard]] std::optional<double> total_steps() const {
    const auto setting = [&](const char* name) { return fold_.setting_number(name); };
    if (setting("steps") > 0) {
      return setting("steps");
    }
    const std::size_t last = fold_.kept_.rows() - 1;
    const double epoch = fold_.kept_.value(Value::kEpoch, last);
    if (!(epoch > 0) || !(setting("epochs") > 0)) {
      return std::nullopt;
    }
    return std::round(setting("epochs") * fold_.kept_.step(last) / epoch);
  }

  const RunFold& fold_;
};

double RunFold::setting_number(std::string_view name) const {
  const auto found = std::ranges::find(settings_, name, &Settings::value_type::first);
  return found == settings_.end() ? 0.0 : std::strtod(found->second.c_str(), nullptr);
}

double RunFold::workers_wanted() const {
  return workers_wanted_ ? static_cast<double>(*workers_wanted_) : setting_number("workers");
}

std::string RunFold::phase() const {
  if (!summary_.empty()) {
    return "ended";
  }
  const std::vector<JobSpan> all = spans();
  return !all.empty() && !all.back().to ? all.back().kind : "running";
}

std::string RunFold::state_json(const std::string& name) const {
  return StateWriter(*this).write(name);
}

}  // namespace mayfly::observe
