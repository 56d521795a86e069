#include "engine/run/run_recorder.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "base/log.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::engine {
namespace {

constexpr const char* kCopyFailedKind = "checkpoint_not_copied";

template <typename R>
void write_event(RunOutput::Turn& out, const R& record, Instant when = monotonic_now()) {
  out.directory.event(R::kKind, object_of(record), when);
}

/// The event of a view, with the members' hosts, as far as they have named them.
ViewEvent event_of(const elastic::View& view, const std::vector<elastic::MemberStatus>& members) {
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

}  // namespace

RunRecorder::RunRecorder(const Job& job, RunDirectory& directory, RunListener& listener,
                         RunHistory history, Hooks hooks)
    : job_(job),
      hooks_(std::move(hooks)),
      output_(directory, listener, std::exchange(history.members, {})),
      cost_(job.config, history, directory.seconds_at(monotonic_now())),
      roles_(job.config),
      progress_(job, std::move(history)),
      member_logs_(job.config.run_dir) {}

void RunRecorder::on_note(Instant when, const elastic::coordinator_effect::Note& note) {
  if (note.kind == RestartEvent::kKind) {
    restart_ = note.detail;  // the next view contains the step
    return;
  }
  RunOutput::Turn out = output_.turn();
  const double t = output_.seconds_at(when);
  NoteEvent event{note.member ? std::optional(value(*note.member)) : std::nullopt, note.detail, {}};
  progress_.noted(note.kind, t);
  if (event.member) {
    event.spending.now = cost_.on_note(when, note.kind, *event.member);
  }
  out.directory.event(note.kind, object_of(event), when);
  if (event.member) {  // a member may join and leave between two looks
    out.directory.members(out.journal.on_note(t, note.kind, *event.member, note.detail));
  }
  const std::string who =
      note.member.has_value() ? fmt::format(" worker {}", value(*note.member)) : "";
  const std::string line = fmt::format("{}{}: {}", note.kind, who, note.detail);
  if (note.kind == "stalled") {
    log::warning(line);
    out.listener.on_event(line);
  } else {
    log::info(line);
  }
}

void RunRecorder::note(const std::string& kind, const std::string& detail) {
  fact({kind, {{"detail", detail}}, detail});
}

void RunRecorder::fact(const Fact& fact) {
  RunOutput::Turn out = output_.turn();
  out.directory.event(fact.kind, fact.fields);
  if (!fact.line.empty()) {
    out.listener.on_event(fact.line);
  }
}

void RunRecorder::print(const std::string& line) {
  output_.turn().listener.on_event(line);
}

void RunRecorder::on_view(Instant when, const elastic::View& view) {
  RunOutput::Turn out = output_.turn();
  const std::vector<elastic::MemberStatus> members =
      server_ != nullptr ? server_->status().members : std::vector<elastic::MemberStatus>();
  ViewEvent event = event_of(view, members);
  out.journal.view_published(view);
  out.journal.introduced(members);
  const std::optional<PsServersNews> servers = roles_.follow(view);
  const std::optional<JobProgress::ViewChange> change =
      progress_.view_published(event, output_.seconds_at(when), restart_.has_value());
  if (!change) {
    return;  // an earlier coordinator has recorded it
  }
  event.committed = change->committed;
  event.spending.now = cost_.of_workers(when);
  if (restart_) {  // the steps are computed again, with the same bits; their records stay
    const std::string reason = *std::exchange(restart_, std::nullopt);
    write_event(out,
                RestartEvent{change->committed, change->undone,
                             change->undone * job_.config.global_batch, reason},
                when);
    out.listener.on_event(reason);
  }
  write_event(out, event, when);
  if (servers) {
    out.directory.event(servers->lost.empty() ? "ps_servers" : "ps_server_lost",
                        {{"view", event.view},
                         {"lost", value_of(servers->lost)},
                         {"servers", value_of(servers->servers)},
                         {"detail", servers->detail}});
  }
}

void RunRecorder::on_recovery(const elastic::Recovery& recovery) {
  RunOutput::Turn out = output_.turn();
  const RecoveryEvent event{progress_.recovered(recovery, output_.seconds_at(recovery.detected))};
  write_event(out, event, recovery.step);
  out.listener.on_event(sentence_of(event.recovery));
}

void RunRecorder::on_join(const elastic::Join& join) {
  RunOutput::Turn out = output_.turn();
  write_event(out, progress_.joined(join, output_.seconds_at(join.connected)), join.step);
}

void RunRecorder::on_report(MemberId member, ByteSpan payload, Instant happened) {
  Result<Record> record = decode_record(payload);
  if (!record.ok()) {
    log::warning(fmt::format("member {}: {}", value(member), record.error().detail));
    return;
  }
  if (const auto* log = std::get_if<LogRecord>(&record.value())) {
    return member_logs_.append(member, *log);
  }
  RunOutput::Turn out = output_.turn();
  if (auto* step = std::get_if<StepRecord>(&record.value())) {
    step->t = output_.seconds_at(happened);
  }
  if (const auto* evaluation = std::get_if<EvaluationRecord>(&record.value())) {
    return receive(out, *evaluation, happened);
  }
  std::visit([this, &out](const auto& r) { receive(out, r); }, record.value());
}

void RunRecorder::receive(RunOutput::Turn& out, const StepRecord& step) {
  if (!progress_.committed(step, monotonic_now())) {
    return;
  }
  out.journal.committed(step.view, step.samples);
  out.directory.metric(step);
  out.listener.on_step(step, job_.total_steps);
  if (step.skipped && step.loss_scale) {
    out.directory.event("update_skipped", {{"step", step.step}, {"loss_scale", *step.loss_scale}});
    out.listener.on_event(sentence_of_skip(step));
  }
}

void RunRecorder::receive(RunOutput::Turn& out, const EvaluationRecord& evaluation,
                          Instant happened) {
  if (!progress_.evaluated(evaluation)) {
    return;
  }
  out.directory.evaluation(evaluation, happened);
  out.listener.on_event(fmt::format("step {}: test accuracy {:.2f} %, test loss {:.4f}",
                                    evaluation.step, 100 * evaluation.top1, evaluation.loss));
}

void RunRecorder::receive(RunOutput::Turn& out, const CheckpointRecord& checkpoint) {
  if (!progress_.checkpointed(checkpoint)) {
    return;
  }
  if (checkpoint.ok) {
    write_event(out, checkpoint);
    out.worked(CheckpointRecord::kFailedKind);
    return;
  }
  const char* rest = checkpoint.step < job_.total_steps ? "; training continues" : "";
  (void)out.failed(CheckpointRecord::kFailedKind, object_of(checkpoint), checkpoint.text,
                   checkpoint.text + rest);
}

void RunRecorder::checkpoint_received(const ReceivedCheckpoint& received) {
  RunOutput::Turn out = output_.turn();
  progress_.received(received);
  if (received.bytes == 0) {
    return;  // the worker has written it here
  }
  out.directory.event("checkpoint_received", {{"step", value(received.step)},
                                              {"host", received.host},
                                              {"bytes", received.bytes},
                                              {"ms", to_ms(received.took)},
                                              {"path", received.path}});
  out.listener.on_event(fmt::format("checkpoint of step {} from {}: {}", value(received.step),
                                    received.host, received.path));
}

void RunRecorder::checkpoint_refused(const std::string& why) {
  if (output_.turn().failed("checkpoint_refused", {{"detail", why}}, why, why)) {
    log::warning(why);
  }
}

void RunRecorder::checkpoint_copied(Step step, const std::string& where, Duration took) {
  RunOutput::Turn out = output_.turn();
  out.directory.event("checkpoint_copied",
                      {{"step", value(step)}, {"to", where}, {"ms", to_ms(took)}});
  out.worked(kCopyFailedKind);
}

void RunRecorder::checkpoint_not_copied(const std::string& why) {
  (void)output_.turn().failed(kCopyFailedKind, {{"detail", why}}, why, why);
}

void RunRecorder::receive(RunOutput::Turn& out, const FatalRecord& fatal) {
  write_event(out, fatal);
  server_->fail(fatal.reason);
}

void RunRecorder::receive(RunOutput::Turn& out, const WorkerRecord& worker) {
  write_event(out, worker);
}

void RunRecorder::receive(RunOutput::Turn& out, const NoteRecord& note) {
  out.directory.event(note.kind, object_of(note));
}

void RunRecorder::receive(RunOutput::Turn& out, const ProgramFailureRecord& failure) {
  write_event(out, failure);
  out.listener.on_event(sentence_of(failure));
  if (const std::optional<std::string> reason = program_failures_.reason_to_end(failure)) {
    receive(out, FatalRecord{*reason});
  }
}

void RunRecorder::receive(RunOutput::Turn& out, const StateRecord& state) {
  progress_.has_state(state);
  write_event(out, state);
}

void RunRecorder::receive(RunOutput::Turn& out, const FallBackRecord& reported) {
  if (const std::optional<FallBackRecord> fell_back = progress_.fell_back(reported)) {
    write_event(out, *fell_back);
    out.listener.on_event(sentence_of(*fell_back));
  }
}

void RunRecorder::receive(RunOutput::Turn& out, const ShardRecord& reported) {
  ShardRecord shard = reported;
  shard.detail = sentence_of(shard);
  write_event(out, shard);
}

void RunRecorder::look_at_members(const elastic::CoordinatorServer& server) {
  const Instant now = monotonic_now();
  if (now - looked_ < kLookInterval) {
    return;
  }
  looked_ = now;
  RunOutput::Turn out = output_.turn();
  out.directory.members(out.journal.look(output_.seconds_at(now), server.status().members));
  if (const std::optional<Spending> due = cost_.due(now)) {
    out.directory.event("cost", object_of(*due), now);
  }
}

/// Writes the last lines about members and cost; the summary contains the same cost.
void RunRecorder::close_accounts() {
  const Instant now = monotonic_now();
  RunOutput::Turn out = output_.turn();
  out.directory.members(out.journal.all_ended(output_.seconds_at(now)));
  progress_.ended(output_.seconds_at(now));
  if (const std::optional<Spending> last = cost_.close(now)) {
    out.directory.event("cost", object_of(*last), now);
  }
}

void RunRecorder::note_missing_records() {
  constexpr std::size_t kStepsListed = 10'000;
  const StepSet steps = progress_.missing_records();
  if (steps.empty()) {
    return;
  }
  RunOutput::Turn out = output_.turn();
  out.directory.event("records_missing",
                      {{"count", steps.size()}, {"steps", value_of(steps.first(kStepsListed))}});
  log::warning(
      fmt::format("metrics.jsonl lacks {} committed steps; events.jsonl lists them", steps.size()));
}

bool RunRecorder::write_summary(const JobEnd& end) {
  note_missing_records();
  close_accounts();
  Summary summary = progress_.summary();
  summary.outcome = end.outcome;
  summary.detail = end.detail;
  const std::optional<Spending> cost = cost_.at(monotonic_now());
  summary.cost = cost ? std::optional(cost->spent) : std::nullopt;
  RunOutput::Turn out = output_.turn();
  const Result<void> written = out.directory.summary(summary);
  if (!written.ok()) {
    summary.outcome = elastic::Outcome::kFailed;
    summary.detail +=
        (summary.detail.empty() ? "" : "; ") + ("no summary: " + written.error().detail);
  }
  if (!end.was_refused) {
    out.listener.on_summary(summary);
  }
  return written.ok();
}

}  // namespace mayfly::engine
