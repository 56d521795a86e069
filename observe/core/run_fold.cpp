#include "observe/core/run_fold.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include "observe/core/records_json.hpp"

namespace mayfly::observe {

namespace json = boost::json;

const std::set<std::string, std::less<>> kSettingsShown = {"backend",
                                                           "checkpoint_every",
                                                           "cloud_budget",
                                                           "cloud_budget_per_hour",
                                                           "cloud_max_workers",
                                                           "cloud_provider",
                                                           "data",
                                                           "device",
                                                           "dtype",
                                                           "epochs",
                                                           "global_batch",
                                                           "image_size",
                                                           "lr",
                                                           "lr_schedule",
                                                           "max_restarts",
                                                           "microbatch",
                                                           "min_workers",
                                                           "model",
                                                           "momentum",
                                                           "phases",
                                                           "ps",
                                                           "reduction",
                                                           "seed",
                                                           "spares",
                                                           "steps",
                                                           "sync",
                                                           "threads",
                                                           "tls",
                                                           "wire",
                                                           "workers"};

void RunFold::config(std::string_view text) {
  configured_.clear();
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t equals = line.find(" = ");
    if (equals == std::string_view::npos) {
      continue;
    }
    const std::string name(line.substr(0, equals));
    std::string value(line.substr(equals + 3));
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"') {
      value = value.substr(1, value.size() - 2);
    }
    if (name == "cloud_offers") {
      servers_.prices(value);
    } else if (kSettingsShown.contains(name) && !value.empty()) {
      configured_.emplace_back(name, cut(value));
    }
  }
  choose_settings();
}

void RunFold::facts(std::string_view text) {
  of_program_.clear();
  const std::optional<json::object> facts = parse_object(text);
  const json::value* field = facts ? facts->if_contains("program") : nullptr;
  if (field != nullptr && field->is_object()) {
    of_program_.emplace_back("data", observe::text(*facts, "data"));
    for (const char* name : {"steps", "global_batch", "microbatch"}) {
      of_program_.emplace_back(name, std::to_string(whole(field->get_object(), name).value_or(0)));
    }
  }
  choose_settings();
}

void RunFold::choose_settings() {
  settings_ = configured_;
  if (of_program_.empty()) {
    return;
  }
  const std::set<std::string, std::less<>> meaningless = {"epochs", "image_size", "lr",
                                                          "lr_schedule", "momentum"};
  std::erase_if(settings_, [&](const auto& setting) {
    const auto said = std::ranges::find(of_program_, setting.first, &Settings::value_type::first);
    return said != of_program_.end() || meaningless.contains(setting.first);
  });
  settings_.insert(settings_.end(), of_program_.begin(), of_program_.end());
}

void RunFold::damaged(const char* file, std::uint64_t offset) {
  if (damaged_ == 0) {
    first_damaged_ = std::string(file) + " at byte " + std::to_string(offset);
  }
  ++damaged_;
}

void RunFold::summary(std::string_view text) {
  summary_ = parse_object(text) ? std::string(text) : std::string();
}

/// The members of a record's list.
static std::vector<std::uint64_t> ids_in(const json::object& object, std::string_view name) {
  std::vector<std::uint64_t> ids;
  const json::value* list = object.if_contains(name);
  if (list != nullptr && list->is_array()) {
    for (const json::value& id : list->get_array()) {
      if (id.is_number()) {
        ids.push_back(static_cast<std::uint64_t>(std::max(0.0, id.to_number<double>())));
      }
    }
  }
  return ids;
}

static std::vector<std::string> texts_in(const json::object& object, std::string_view name) {
  std::vector<std::string> texts;
  const json::value* list = object.if_contains(name);
  if (list != nullptr && list->is_array()) {
    for (const json::value& one : list->get_array()) {
      texts.push_back(one.is_string() ? cut(one.get_string()) : "");
    }
  }
  return texts;
}

/// Adds one event to the fold.
struct EventReader {
  RunFold& fold;
  const json::object& event;
  double t;
  const std::string kind;
  const std::optional<std::uint64_t> member;
  const std::string detail;

  void read() {
    if (kind == "started" || kind == "coordinator_restarted") {
      begin();
    } else if (kind == "view") {
      view();
    } else if (kind == "recovery") {
      recovery();
    } else if (kind == "evaluation" || kind == "evaluated") {  // by the job, or by an evaluator
      fold.evaluations_.push_back({t, step(), number(event, "test_top1").value_or(0),
                                   number(event, "test_loss"),
                                   number(event, "ms").value_or(0) / 1000, false});
    } else if (kind.starts_with("checkpoint")) {
      fold.checkpoints_.push_back({t, step(), kind, detail});
      if (kind == "checkpoint") {
        ++fold.totals_.checkpoints;
        fold.totals_.last_checkpoint = t;
      }
    } else if (kind == "fell_back" || kind == "restarted") {
      fold.undone_steps_ += whole(event, "undone_steps").value_or(0);
      fold.totals_.undone = fold.undone_steps_;
      if (kind == "restarted") {
        fold.restarts_.push_back({t, step(), whole(event, "undone_steps").value_or(0)});
      }
      forget_after(step());
    } else if (!of_members() && !of_servers()) {
      of_the_job();
    }
    if (const std::optional<double> spent = number(event, "spent")) {
      fold.servers_.money({t, *spent, number(event, "per_hour").value_or(0),
                           static_cast<std::uint32_t>(whole(event, "billing").value_or(0))});
    }
  }

 private:
  [[nodiscard]] std::uint64_t step() const { return whole(event, "step").value_or(0); }

  void forget_after(std::uint64_t last) {
    for (EvaluationFact& evaluation : fold.evaluations_) {
      evaluation.undone = evaluation.undone || evaluation.step > last;
    }
  }

  void begin() {
    if (kind == "coordinator_restarted") {
      ++fold.totals_.restarts;
      fold.close_span(fold.last_event_);
      fold.spans_.push_back({fold.last_event_, t, "no_coordinator", detail});
      return;
    }
    if (fold.parts_.size() > 1) {
      fold.members_.all_ended(fold.last_event_);
      fold.servers_.part_ended(fold.last_event_);
      fold.close_span(fold.last_event_);
      fold.spans_.push_back({fold.last_event_, t, "not_running", ""});
    }
    fold.spans_.push_back({t, std::nullopt, "start", ""});
    fold.workers_wanted_.reset();
  }

  void view() {
    if (!event.contains("members")) {
      return;  // the note that repeats it in words
    }
    const std::uint64_t committed = whole(event, "committed").value_or(0);
    if (fold.spans_.empty() || fold.spans_.back().kind != "start" || fold.spans_.back().to) {
      fold.close_span(t);  // else the start lasts until the first step
    }
    fold.members_.view(t, committed, ids_in(event, "members"), texts_in(event, "hosts"));
    if (!std::exchange(fold.parts_.back().has_view, true)) {
      forget_after(committed);  // the job is resumed from an earlier step
    }
  }

  void recovery() {
    const json::value* inner = event.if_contains("recovery");
    if (inner == nullptr || !inner->is_object()) {
      return;
    }
    const json::object& facts = inner->get_object();
    RecoveryFact recovery;
    const auto ms = [&](const char* name) { return number(facts, name).value_or(0) / 1000; };
    recovery.detected = number(facts, "detected").value_or(t);
    recovery.step = recovery.detected + ms("step_ms");
    recovery.told = recovery.detected + ms("told_ms");
    recovery.stopped = recovery.detected + ms("stopped_ms");
    recovery.formed = recovery.detected + ms("formed_ms");
    recovery.synced = recovery.detected + ms("synced_ms");
    recovery.cause = text(facts, "cause");
    recovery.members = ids_in(facts, "members");
    recovery.committed = whole(facts, "step").value_or(0);
    recovery.view = whole(facts, "view").value_or(0);
    recovery.redone_microbatches = whole(facts, "redone_microbatches").value_or(0);
    recovery.detail = text(facts, "detail");
    fold.totals_.redone_microbatches += recovery.redone_microbatches;
    fold.recoveries_.push_back(std::move(recovery));
  }

  bool of_members() {
    if (!member) {
      return false;
    }
    if (kind == "connected" || kind == "returned" || kind == "joins_again") {
      fold.members_.connected(t, *member, detail);
    } else if (kind == "joined") {
      fold.members_.ready(t, *member, detail);
    } else if (kind == "join") {
      const double connected = number(event, "connected").value_or(t);
      const double admitted = connected + number(event, "admitted_ms").value_or(0) / 1000;
      const double promoted = connected + number(event, "promoted_ms").value_or(0) / 1000;
      fold.members_.observed(*member, admitted, promoted);
    } else if (kind == "lost" || kind == "left" || kind == "evicted" || kind == "disconnected" ||
               kind == "corrupted") {
      fold.members_.ended(t, *member, kind == "corrupted" ? "evicted" : kind, detail);
    } else {
      return false;
    }
    return true;
  }

  bool of_servers() {
    const std::string server = text(event, "server");
    if (kind == "server_requested") {
      fold.servers_.requested(t, detail);
    } else if (kind == "server_refused") {
      fold.servers_.refused(t, detail);
    } else if (kind == "server_granted") {
      fold.servers_.granted(t, server, detail);
    } else if (kind == "server_joined") {
      fold.servers_.joined(t, server);
    } else if (kind == "server_ended") {
      fold.servers_.ended(t, server, "ended", detail, number(event, "cost"));
    } else if (kind == "server_lost" || kind == "server_given_up") {
      fold.servers_.ended(t, server, kind == "server_lost" ? "lost" : "given up", detail,
                          std::nullopt);
    } else {
      return false;
    }
    return true;
  }

  void of_the_job() {
    if (kind == "waiting" || kind == "paused" || kind == "no_quorum") {
      fold.close_span(t);
      fold.spans_.push_back({t, std::nullopt, kind == "no_quorum" ? "waiting" : kind, detail});
    } else if (kind == "resumed") {
      fold.close_span(t);
    } else if (kind == "scale" || kind == "replan_scaled") {
      const std::optional<std::uint64_t> workers = whole(event, "workers");
      fold.workers_wanted_ = workers ? workers : fold.workers_wanted_;
    }
  }
};

void RunFold::close_span(double t) {
  if (!spans_.empty() && !spans_.back().to) {
    spans_.back().to = std::max(t, spans_.back().from);
  }
}

void RunFold::event(std::string_view line, std::uint64_t offset) {
  const std::optional<json::object> event = parse_object(line);
  const std::string kind = event ? text(*event, "kind") : "";
  const std::optional<double> time = event ? number(*event, "time") : std::nullopt;
  const std::optional<double> own_t = event ? number(*event, "t") : std::nullopt;
  if (kind.empty() || !time || !own_t || (parts_.empty() && kind != "started")) {
    return damaged("events.jsonl", offset);
  }
  origin_ = origin_.value_or(*time - *own_t);
  const double t = std::max(*own_t, last_event_);
  if (kind == "started") {
    JobPart& part = parts_.emplace_back();
    part.begin = t;
    part.metrics_bytes = whole(*event, "metrics_bytes").value_or(0);
  }
  EventReader{*this, *event, t, kind, whole(*event, "member"), text(*event, "detail")}.read();
  last_event_ = t;
  if (kind != "view" || event->contains("members")) {
    events_.push_back(
        {t, kind, whole(*event, "member"), whole(*event, "step"), text(*event, "detail")});
  }
}

void RunFold::metric(std::string_view line, std::uint64_t offset) {
  const std::optional<json::object> record = parse_object(line);
  if (!record) {
    return damaged("metrics.jsonl", offset);
  }
  const std::optional<std::uint64_t> step = whole(*record, "step");
  const std::optional<double> t = number(*record, "t");
  if (!step || !t || *step > std::numeric_limits<std::uint32_t>::max()) {
    return damaged("metrics.jsonl", offset);
  }
  const auto value = [&](const char* name) {
    const std::optional<double> found = number(*record, name);
    return found ? static_cast<float>(*found) : std::numeric_limits<float>::quiet_NaN();
  };
  const double rate = number(*record, "images_per_second").value_or(0);
  const double samples = number(*record, "samples").value_or(0);
  const float none = std::numeric_limits<float>::quiet_NaN();
  RowNote note;
  note.checkpoint = static_cast<float>(number(*record, "checkpoint_ms").value_or(0) / 1000);
  ++totals_.steps;
  totals_.samples += static_cast<std::uint64_t>(std::max(0.0, samples));
  if (rate > 0 && samples > 0) {
    note.seconds = samples / rate;
    totals_.step_seconds.add(kDurationBounds, *note.seconds);
  }
  CurveRow row{*t,
               static_cast<std::uint32_t>(*step),
               {value("loss"), value("accuracy"), value("learning_rate"),
                rate > 0 ? static_cast<float>(rate) : none, value("data_wait_ms"), value("members"),
                value("epoch")}};
  const std::size_t place = kept_.first_at(row.step);
  const bool is_late = place < kept_.rows() && kept_.step(place) != row.step;
  profile(*record, offset, is_late);
  // The clocks of members that report differ slightly.
  row.t = place > 0 ? std::max(row.t, kept_.time(place - 1)) : row.t;
  row.t = is_late ? std::min(row.t, kept_.time(place)) : row.t;
  if (!parts_.empty()) {
    JobPart& part = parts_[profiled_parts_ - 1];
    part.first_row = part.first_row.value_or(row.t);
    part.last_row = std::max(part.last_row.value_or(row.t), row.t);
  }
  if (place == kept_.rows()) {
    first_changed_ = std::min(first_changed_, place);
    kept_.push(row);
    kept_notes_.push_back(note);
    return;
  }
  if (!is_late) {
    undo_from(place);  // the job went back and computes this step again
    kept_.push(row);
    kept_notes_.push_back(note);
    return;
  }
  // A late record, of a member that had been disconnected.
  std::vector<CurveRow> later;
  for (std::size_t i = place; i < kept_.rows(); ++i) {
    later.push_back(kept_.row(i));
  }
  kept_.truncate(place);
  kept_.push(row);
  for (const CurveRow& one : later) {
    kept_.push(one);
  }
  kept_notes_.insert(kept_notes_.begin() + static_cast<std::ptrdiff_t>(place), note);
  first_changed_ = std::min(first_changed_, place);
}

void RunFold::profile(const json::object& record, std::uint64_t offset, bool is_late) {
  std::size_t parts = profiled_parts_;
  while (parts < parts_.size() && offset >= parts_[parts].metrics_bytes) {
    ++parts;
  }
  if (std::exchange(profiled_parts_, parts) != parts) {
    step_profile_.begin_part();
  }
  step_profile_.add(record, is_late);
}

bool RunFold::is_profiled(double t) const {
  if (parts_.empty()) {
    return true;
  }
  const std::size_t next = std::max<std::size_t>(profiled_parts_, 1);
  const bool is_later = next < parts_.size() && t >= parts_[next].begin;
  return t >= parts_[next - 1].begin && !is_later;
}

namespace {

std::optional<MemberStages> stages_of(const json::object& record) {
  const json::value* field = record.if_contains("stages");
  if (field == nullptr || !field->is_object()) {
    return std::nullopt;
  }
  const json::object& stages = field->get_object();
  const auto time = [&stages](const char* name) { return number(stages, name).value_or(0); };
  const auto count = [&stages](const char* name) {
    return static_cast<std::uint32_t>(whole(stages, name).value_or(0));
  };
  const json::value* yields = stages.if_contains("yields");
  return MemberStages{time("fetch_ms"),
                      time("prep_ms"),
                      time("compute_ms"),
                      time("compute_cpu_ms"),
                      time("bytes"),
                      count("load_threads"),
                      count("compute_threads"),
                      count("ahead"),
                      yields != nullptr && yields->is_bool() && yields->get_bool()};
}

/// Whether the phase is that of a member that leaves: not one of elastic::name_of for members that
/// stay.
bool is_of_one_that_goes(const std::string& phase) {
  constexpr std::array<std::string_view, 5> kStaying = {"loading", "ready", "observing", "active",
                                                        "returning"};
  return std::ranges::find(kStaying, phase) == kStaying.end();
}

}  // namespace

void RunFold::member(std::string_view line, std::uint64_t offset) {
  const std::optional<json::object> record = parse_object(line);
  const std::optional<std::uint64_t> id = record ? whole(*record, "member") : std::nullopt;
  const std::optional<double> t = record ? number(*record, "t") : std::nullopt;
  if (!id || !t) {
    return damaged("members.jsonl", offset);
  }
  members_.measured(
      *id, {*t, number(*record, "microbatch_ms").value_or(0),
            static_cast<std::uint32_t>(whole(*record, "microbatches").value_or(0)),
            whole(*record, "steps").value_or(0), whole(*record, "samples").value_or(0),
            static_cast<std::uint32_t>(whole(*record, "cores").value_or(0)), stages_of(*record),
            is_of_one_that_goes(text(*record, "phase"))});
}

void RunFold::undo_from(std::size_t row) {
  for (std::size_t i = row; i < kept_.rows(); ++i) {
    undone_.push(kept_.row(i));
    undone_notes_.push_back(kept_notes_[i]);
  }
  kept_.truncate(row);
  kept_notes_.resize(row);
  first_changed_ = std::min(first_changed_, row);
}

std::size_t RunFold::take_first_changed() {
  const std::size_t first = first_changed_;
  first_changed_ = kept_.rows();
  return first;
}

double RunFold::end() const {
  const double last_row = kept_.rows() == 0 ? 0 : kept_.time(kept_.rows() - 1);
  return std::max(last_event_, last_row);
}

}  // namespace mayfly::observe
