#include "engine/run/run_history.hpp"

#include <algorithm>
#include <deque>
#include <fstream>
#include <optional>

#include "engine/run/record_json.hpp"

namespace mayfly::engine {
namespace {

/// The events of one part of a run, in order.
struct EventReader {
  RunHistory history;
  std::size_t metrics_begin = 0;
  double began = 0;
  bool has_restarted = false;
  StateRecord state;
  std::optional<std::uint64_t> received;  // the newest checkpoint that arrived in this directory
  std::deque<FallBackRecord> fall_backs;  // that undid steps

  void read(const json::object& event) {
    const auto kind = field_of<std::string>(event, "kind");
    const double t = number_or(event, "t", 0);
    history.on_event(kind, t);
    if (const auto spending = record_of<OptionalSpending>(event); spending.now) {
      history.spending = spending.now;
      history.spending_t = t;
    }
    if (kind == StartedEvent::kKind) {
      const std::optional<Spending> before = history.spending;
      *this = {};
      began = t;
      if (before) {
        history.spending = Spending{before->spent, 0, 0};
      }
      const auto started = record_of<StartedEvent>(event);
      metrics_begin = started.metrics_bytes;
      history.start = {started.resumed_step, started.resumed_digest};
    } else if (kind == ViewEvent::kKind && event.contains("members")) {  // not the note about it
      const auto view = record_of<ViewEvent>(event);
      (void)history.view_published(view);
      history.goes_on(t);
      history.current_step = view.committed;
      history.took_part(view.committed, view);
    } else if (kind == RestartEvent::kKind && event.contains("undone_samples")) {
      const auto restart = record_of<RestartEvent>(event);
      has_restarted = true;
      history.undone_samples += restart.undone_samples;
      history.undone_views = history.view;
      history.undone_after = restart.step;
      history.forget_after(restart.step);
    } else if (kind == StateRecord::kKind) {
      state = record_of<StateRecord>(event);
    } else if (kind == RecoveryEvent::kKind) {
      history.recoveries.push_back(record_of<RecoveryEvent>(event).recovery);
    } else if (kind == EvaluationRecord::kKind) {
      history.evaluation = record_of<EvaluationRecord>(event);
      history.evaluation_seconds += history.evaluation->ms / 1000;
    } else if (kind == CheckpointRecord::kKind) {
      const auto checkpoint = record_of<CheckpointRecord>(event);
      if (!received || *received < checkpoint.step) {
        history.last_checkpoint = checkpoint.text;
      }
      history.checkpoints.insert(checkpoint.step);
    } else if (kind == "checkpoint_received" && event.contains("path")) {
      received = field_of<std::uint64_t>(event, "step");
      history.last_checkpoint = field_of<std::string>(event, "path");
    } else if (kind == FallBackRecord::kKind) {
      const auto fell_back = record_of<FallBackRecord>(event);
      history.fell_back_at = fell_back.at;
      if (fell_back.undone_steps > 0) {
        fall_backs.push_back(fell_back);
      }
      history.current_step = std::min(history.current_step, fell_back.step);
      state = state.step > fell_back.step ? StateRecord() : state;
      received.reset();
      history.forget_after(fell_back.step);
    }
  }
};

/// Undoes the steps of the first of these, and removes it.
void undo_first(RunHistory& history, std::deque<FallBackRecord>& to_come) {
  const FallBackRecord& first = to_come.front();
  (void)history.fall_back(first.step, first.undone_samples / first.undone_steps);
  to_come.pop_front();
}

/// A step is on record again only if the job fell back before. `to_come`: the times that it did,
/// after the records so far.
void read_step(RunHistory& history, const StepRecord& record, std::deque<FallBackRecord>& to_come) {
  while (!to_come.empty() && record.step <= history.last_step &&
         !history.missing.contains(record.step)) {
    undo_first(history, to_come);
  }
  history.add(record);
  if (record.step == history.last_step && !record.digest.empty()) {
    history.last_digest = record.digest;
    history.digest_step = record.step;
  }
}

}  // namespace

void RunHistory::add(const StepRecord& record) {
  if (last_step > 0 && last_step < record.step) {  // others' reports of them may be on their way
    missing.append(last_step + 1, record.step - 1);
  }
  missing.erase(record.step);
  first_step = first_step == 0 ? record.step : first_step;
  last_step = std::max(last_step, record.step);
  samples += record.samples;
  skipped_steps += record.skipped ? 1 : 0;
  retried_steps += record.attempts > 1 ? 1 : 0;
  checkpoint_seconds += record.checkpoint_ms / 1000;
  if (record.images_per_second > 0) {  // the first step is not part of the training time
    train_seconds += static_cast<double>(record.samples) / record.images_per_second;
    data_wait_seconds += record.data_wait_ms / 1000;
  }
}

bool RunHistory::view_published(const ViewEvent& event) {
  if (event.view <= view) {
    return false;
  }
  view = event.view;
  views += views == 0 || event.members != view_members ? 1 : 0;
  view_members = event.members;
  return true;
}

std::uint64_t RunHistory::fall_back(std::uint64_t step, std::uint64_t samples_per_step) {
  if (step >= last_step) {
    return 0;
  }
  const std::uint64_t steps = last_step - step;
  missing.erase_after(step);
  const std::uint64_t undone = std::min(samples, steps * samples_per_step);
  samples -= undone;
  undone_samples += undone;
  last_step = current_step = step;
  return steps;
}

std::uint64_t RunHistory::restart(std::uint64_t step, std::uint64_t samples_per_step) {
  const std::uint64_t undone = current_step - std::min(step, current_step);
  undone_samples += undone * samples_per_step;
  undone_views = view - std::min<std::uint64_t>(view, 1);
  undone_after = step;
  forget_after(step);
  return undone;
}

void RunHistory::reached(std::uint64_t step, const std::string& digest) {
  if (step < current_step) {
    last_digest.clear();
  }
  if (!digest.empty()) {
    last_digest = digest;
    digest_step = step;
  }
  current_step = step;
}

void RunHistory::has_state_of(std::uint64_t step, const std::string& digest) {
  if (last_step > 0) {
    missing.append(last_step + 1, step);
  }
  last_step = last_step > 0 ? std::max(last_step, step) : 0;
  reached(step, digest);
}

void RunHistory::took_part(std::uint64_t committed, const ViewEvent& event) {
  std::set<std::uint64_t> now;
  for (std::size_t i = 0; i < std::min(event.members.size(), event.hosts.size()); ++i) {
    const std::uint64_t id = event.members[i];
    now.insert(id);
    if (!present.contains(id)) {
      workers.push_back({id, event.hosts[i], committed, committed});
    }
  }
  for (WorkerStay& stay : workers) {
    if (present.contains(stay.member) && !now.contains(stay.member)) {
      stay.last_step = std::max(stay.last_step, committed);
    }
  }
  present = std::move(now);
}

std::vector<WorkerStay> RunHistory::stays() const {
  std::vector<WorkerStay> all = workers;
  for (WorkerStay& stay : all) {
    if (present.contains(stay.member)) {
      stay.last_step = std::max(stay.last_step, current_step);
    }
  }
  return all;
}

void RunHistory::on_event(const std::string& kind, double t) {
  const bool stands = kind == "waiting" || kind == "paused" || kind == "no_quorum";
  if (stands && views > 0 && !waiting_since) {
    waiting_since = t;
  } else if (kind == "resumed") {
    goes_on(t);
  }
}

void RunHistory::goes_on(double t) {
  if (waiting_since) {
    waiting_seconds += std::max(0.0, t - *waiting_since);
    waiting_since.reset();
  }
}

double RunHistory::recovery_seconds() const {
  std::vector<std::pair<double, double>> spans;
  for (const RecoveryRecord& recovery : recoveries) {
    spans.emplace_back(recovery.detected, recovery.detected + recovery.step_ms / 1000);
  }
  std::sort(spans.begin(), spans.end());
  double sum = 0;
  double end = 0;
  for (const auto& [from, to] : spans) {
    sum += std::max(0.0, to - std::max(from, end));
    end = std::max(end, to);
  }
  return sum;
}

void RunHistory::forget_after(std::uint64_t step) {
  checkpoints.erase(checkpoints.upper_bound(step), checkpoints.end());
  if (evaluation && evaluation->step > step) {
    evaluation.reset();
  }
}

Result<RunHistory> read_run_history(const std::string& run_dir) {
  EventReader events;
  TRY(for_each_line(run_dir + "/events.jsonl", 0,
                    [&](const json::object& event) { events.read(event); }));
  RunHistory history = std::move(events.history);
  const StateRecord& state = events.state;
  const std::uint64_t of_last_view = history.current_step;
  std::uint64_t since_restart = of_last_view;
  TRY(for_each_line(run_dir + "/metrics.jsonl", events.metrics_begin,
                    [&](const json::object& line) {
                      const auto record = record_of<StepRecord>(line);
                      read_step(history, record, events.fall_backs);
                      if (record.view > history.undone_views) {
                        since_restart = std::max(since_restart, record.step);
                      }
                    }));
  while (!events.fall_backs.empty()) {  // no step is on record since then
    undo_first(history, events.fall_backs);
  }
  (void)for_each_line(run_dir + "/members.jsonl", 0, [&](const json::object& line) {
    if (const auto member = record_of<MemberRecord>(line); member.t >= events.began) {
      history.members.push_back(member);
    }
  });  // absent before the first member
  // Steps that are computed again are not recorded again. If the job is computing such steps, the
  // next report corrects this number.
  history.current_step = history.last_step;
  if (events.has_restarted && since_restart < history.last_step) {
    history.reached(since_restart, "");
  } else if (std::max(of_last_view, state.step) > history.last_step) {
    history.has_state_of(std::max(of_last_view, state.step), "");
  }
  if (state.step > 0 && state.step == history.current_step) {
    history.reached(state.step, state.digest);
  }
  return history;
}

RunHistory history_of_new_part(const std::string& run_dir) {
  RunHistory history;
  if (const Result<RunHistory> all = read_run_history(run_dir); all.ok()) {
    history.spending = all.value().spending;
    history.spending_t = all.value().spending_t;
  }
  return history;
}

namespace {

/// The last record whose line is complete. Files of records may be long: only their ends are read.
std::optional<json::object> last_record_of(const std::string& path) {
  constexpr std::streamoff kTailBytes = 1 << 20;
  std::optional<json::object> last;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) {
    return last;
  }
  file.seekg(std::max<std::streamoff>(0, static_cast<std::streamoff>(file.tellg()) - kTailBytes));
  std::string line;
  while (std::getline(file, line) && !file.eof()) {  // a torn line has no end
    (void)with_object("", line, [&last](const json::object& object) { last = object; });
  }
  return last;
}

}  // namespace

double seconds_on_record(const std::string& run_dir, double wall_clock) {
  const std::optional<json::object> event = last_record_of(run_dir + "/events.jsonl");
  const std::optional<json::object> metric = last_record_of(run_dir + "/metrics.jsonl");
  double reached = metric ? number_or(*metric, "t", 0) : 0;
  if (event) {
    const double recorded = number_or(*event, "time", wall_clock);
    reached = std::max(reached, number_or(*event, "t", 0) + std::max(0.0, wall_clock - recorded));
  }
  return reached;
}

}  // namespace mayfly::engine
