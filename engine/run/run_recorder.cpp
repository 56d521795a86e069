#include "engine/run/run_recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/log.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::engine {
RunRecorder::RunRecorder(const Job& job, RunDirectory& directory, RunListener& listener,
                         RunHistory history, Hooks hooks)
    : job_(job),
      directory_(directory),
      listener_(listener),
      hooks_(std::move(hooks)),
      cost_(job.config, history, directory.seconds_at(monotonic_now())),
      roles_(job.config),
      progress_(job, history),
      member_logs_(job.config.run_dir) {
  for (const MemberRecord& line : history.members) {
    journal_.restore(line);
  }
}

template <typename R>
void RunRecorder::record(const R& record, Instant when) {
  directory_.event(R::kKind, object_of(record), when);
}

void RunRecorder::on_note(Instant when, const elastic::coordinator_effect::Note& note) {
  const std::lock_guard output(output_mutex_);
  if (note.kind == RestartEvent::kKind) {
    restart_ = note.detail;  // the view that follows says the step
    return;
  }
  NoteEvent event{note.member ? std::optional(value(*note.member)) : std::nullopt, note.detail, {}};
  progress_.noted(note.kind, directory_.seconds_at(when));
  if (event.member) {
    event.spending.now = cost_.heard(when, note.kind, *event.member);
  }
  directory_.event(note.kind, object_of(event), when);
  if (event.member) {  // it may come and go between two looks
    directory_.members(
        journal_.heard(directory_.seconds_at(when), note.kind, *event.member, note.detail));
  }
  const std::string who =
      note.member.has_value() ? fmt::format(" worker {}", value(*note.member)) : "";
  const std::string line = fmt::format("{}{}: {}", note.kind, who, note.detail);
  if (note.kind == "stalled") {
    log::warning(line);
    listener_.on_event(line);
  } else {
    log::info(line);
  }
}

void RunRecorder::note(const std::string& kind, const std::string& detail) {
  fact({kind, {{"detail", detail}}, detail});
}

void RunRecorder::fact(const Fact& fact) {
  const std::lock_guard lock(output_mutex_);
  directory_.event(fact.kind, fact.fields);
  if (!fact.line.empty()) {
    listener_.on_event(fact.line);
  }
}

void RunRecorder::on_view(Instant when, const elastic::View& view) {
  const std::lock_guard output(output_mutex_);
  const std::vector<elastic::MemberStatus> members =
      server_ != nullptr ? server_->status().members : std::vector<elastic::MemberStatus>();
  ViewEvent event = event_of(view, members);
  journal_.view_published(view);
  journal_.introduced(members);
  const std::optional<PsServersNews> servers = roles_.follow(view);
  const std::optional<JobProgress::ViewChange> change =
      progress_.view_published(event, directory_.seconds_at(when), restart_.has_value());
  if (!change) {
    return;  // the coordinator before this one told it
  }
  event.committed = change->committed;
  event.spending.now = cost_.of_workers(when);
  if (restart_) {  // the steps are computed again, with the same bits; their records stay
    const std::string reason = *std::exchange(restart_, std::nullopt);
    record(RestartEvent{change->committed, change->undone,
                        change->undone * job_.config.global_batch, reason},
           when);
    listener_.on_event(reason);
  }
  record(event, when);
  if (servers) {
    directory_.event(servers->lost.empty() ? "ps_servers" : "ps_server_lost",
                     {{"view", event.view},
                      {"lost", value_of(servers->lost)},
                      {"servers", value_of(servers->servers)},
                      {"detail", servers->detail}});
  }
}

/// With the host that each member is on, as far as it has said it.
ViewEvent RunRecorder::event_of(const elastic::View& view,
                                const std::vector<elastic::MemberStatus>& members) {
  std::map<MemberId, std::string> hosts;
  for (const elastic::MemberStatus& member : members) {
    hosts[member.id] = member.host;
  }
  ViewEvent event{value(view.id), value(view.committed), {}, {}, {}};
  for (const elastic::ViewMember& member : view.members) {
    event.members.push_back(value(member.id));
    event.hosts.push_back(hosts[member.id]);
  }
  return event;
}

void RunRecorder::on_recovery(const elastic::Recovery& recovery) {
  const std::lock_guard output(output_mutex_);
  const RecoveryEvent event{
      progress_.recovered(recovery, directory_.seconds_at(recovery.detected))};
  record(event, recovery.step);
  listener_.on_event(sentence_of(event.recovery));
}

void RunRecorder::on_join(const elastic::Join& join) {
  const std::lock_guard output(output_mutex_);
  record(progress_.joined(join, directory_.seconds_at(join.connected)), join.step);
}

void RunRecorder::on_report(MemberId member, ByteSpan payload, Instant happened) {
  Result<Record> record = decode_record(payload);
  if (!record.ok()) {
    log::warning(fmt::format("member {}: {}", value(member), record.error().detail));
    return;
  }
  const std::lock_guard output(output_mutex_);
  if (const auto* log = std::get_if<LogRecord>(&record.value())) {
    member_logs_.append(member, *log);
  }
  if (auto* step = std::get_if<StepRecord>(&record.value())) {
    step->t = directory_.seconds_at(happened);
  }
  if (const auto* evaluation = std::get_if<EvaluationRecord>(&record.value())) {
    return receive(*evaluation, happened);
  }
  std::visit([this](const auto& r) { receive(r); }, record.value());
}

void RunRecorder::receive(const StepRecord& step) {
  if (!progress_.committed(step, monotonic_now())) {
    return;
  }
  journal_.committed(step.view, step.samples);
  directory_.metric(step);
  listener_.on_step(step, job_.total_steps);
  if (step.skipped && step.loss_scale) {
    directory_.event("update_skipped", {{"step", step.step}, {"loss_scale", *step.loss_scale}});
    listener_.on_event(sentence_of_skip(step));
  }
}

void RunRecorder::receive(const EvaluationRecord& evaluation, Instant happened) {
  if (!progress_.evaluated(evaluation)) {
    return;
  }
  directory_.evaluation(evaluation, happened);
  listener_.on_event(fmt::format("step {}: test accuracy {:.2f} %, test loss {:.4f}",
                                 evaluation.step, 100 * evaluation.top1, evaluation.loss));
}

void RunRecorder::receive(const CheckpointRecord& checkpoint) {
  if (!progress_.checkpointed(checkpoint)) {
    return;
  }
  directory_.event(checkpoint.ok ? CheckpointRecord::kKind : CheckpointRecord::kFailedKind,
                   object_of(checkpoint));
  if (checkpoint.ok) {
    checkpoint_failures_.is_over();
  } else if (checkpoint_failures_.is_news(checkpoint.text)) {
    listener_.on_event(checkpoint.text +
                       (checkpoint.step < job_.total_steps ? "; training goes on" : ""));
  }
}

void RunRecorder::checkpoint_received(const ReceivedCheckpoint& received) {
  const std::lock_guard output(output_mutex_);
  progress_.received(received);
  if (received.bytes == 0) {
    return;  // the worker has written it here
  }
  directory_.event("checkpoint_received", {{"step", value(received.step)},
                                           {"host", received.host},
                                           {"bytes", received.bytes},
                                           {"ms", to_ms(received.took)},
                                           {"path", received.path}});
  listener_.on_event(fmt::format("checkpoint of step {} from {}: {}", value(received.step),
                                 received.host, received.path));
}

void RunRecorder::checkpoint_refused(const std::string& why) {
  if (went_wrong("checkpoint_refused", why, refusals_)) {
    log::warning(why);
  }
}

/// Every time is on record; the user is told a cause once. True if it was told now.
bool RunRecorder::went_wrong(const char* kind, const std::string& why, SaidFailure& said) {
  const std::lock_guard output(output_mutex_);
  directory_.event(kind, {{"detail", why}});
  const bool is_news = said.is_news(why);
  if (is_news) {
    listener_.on_event(why);
  }
  return is_news;
}

void RunRecorder::checkpoint_copied(Step step, const std::string& where, Duration took) {
  const std::lock_guard output(output_mutex_);
  directory_.event("checkpoint_copied",
                   {{"step", value(step)}, {"to", where}, {"ms", to_ms(took)}});
  copy_failures_.is_over();
}

void RunRecorder::checkpoint_not_copied(const std::string& why) {
  (void)went_wrong("checkpoint_not_copied", why, copy_failures_);
}

void RunRecorder::receive(const FatalRecord& fatal) {
  record(fatal);
  server_->fail(fatal.reason);
}

void RunRecorder::receive(const WorkerRecord& worker) {
  record(worker);
}

void RunRecorder::receive(const NoteRecord& note) {
  directory_.event(note.kind, object_of(note));
}

void RunRecorder::receive(const ProgramFailureRecord& failure) {
  record(failure);
  listener_.on_event(sentence_of(failure));
  if (const std::optional<std::string> reason = program_failures_.reason_to_end(failure)) {
    receive(FatalRecord{*reason});
  }
}

void RunRecorder::receive(const StateRecord& state) {
  progress_.has_state(state);
  record(state);
}

void RunRecorder::receive(const FallBackRecord& reported) {
  if (const std::optional<FallBackRecord> fell_back = progress_.fell_back(reported)) {
    record(*fell_back);
    listener_.on_event(sentence_of(*fell_back));
  }
}

void RunRecorder::receive(const ShardRecord& reported) {
  ShardRecord shard = reported;
  shard.detail = sentence_of(shard);
  record(shard);
}

void RunRecorder::look_at_members(const elastic::CoordinatorServer& server) {
  const Instant now = monotonic_now();
  const std::lock_guard output(output_mutex_);
  if (now - looked_ < kLookInterval) {
    return;
  }
  looked_ = now;
  directory_.members(journal_.look(directory_.seconds_at(now), server.status().members));
  if (const std::optional<Spending> due = cost_.due(now)) {
    directory_.event("cost", object_of(*due), now);
  }
}

/// The last lines about members and money; the summary has the same sum.
void RunRecorder::close_accounts() {
  const Instant now = monotonic_now();
  const std::lock_guard output(output_mutex_);
  directory_.members(journal_.all_ended(directory_.seconds_at(now)));
  progress_.ended(directory_.seconds_at(now));
  if (const std::optional<Spending> last = cost_.close(now)) {
    directory_.event("cost", object_of(*last), now);
  }
}

void RunRecorder::note_missing_records() {
  const std::vector<std::uint64_t> steps = progress_.missing_records();
  if (steps.empty()) {
    return;
  }
  const std::lock_guard output(output_mutex_);
  directory_.event("records_missing", {{"steps", value_of(steps)}});
  log::warning(
      fmt::format("metrics.jsonl lacks {} committed steps; events.jsonl says which", steps.size()));
}

bool RunRecorder::write_summary(const JobEnd& end) {
  note_missing_records();
  close_accounts();
  Summary summary = progress_.summary();
  summary.outcome = end.outcome;
  summary.detail = end.detail;
  const std::optional<Spending> cost = cost_.at(monotonic_now());
  summary.cost = cost ? std::optional(cost->spent) : std::nullopt;
  const Result<void> written = directory_.summary(summary);
  if (!written.ok()) {
    summary.outcome = elastic::Outcome::kFailed;
    summary.detail +=
        (summary.detail.empty() ? "" : "; ") + ("no summary: " + written.error().detail);
  }
  if (!end.was_refused) {
    listener_.on_summary(summary);
  }
  return written.ok();
}

}  // namespace mayfly::engine
