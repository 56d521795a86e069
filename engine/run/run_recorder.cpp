#include "engine/run/run_recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/log.hpp"
#include "engine/run/json_text.hpp"
#include "engine/run/run_records.hpp"

namespace mayfly::engine {
namespace {

RecoveryRecord record_of(const elastic::Recovery& recovery) {
  const auto since_detected = [&recovery](Instant t) { return to_ms(t - recovery.detected); };
  RecoveryRecord record;
  record.cause = name_of(recovery.cause);
  for (const MemberId member : recovery.members) {
    record.members.push_back(value(member));
  }
  record.step = value(recovery.committed);
  record.view = value(recovery.new_view);
  record.redone_microbatches = recovery.redone_microbatches;
  record.detail = recovery.detail;
  record.told_ms = since_detected(recovery.told);
  record.stopped_ms = since_detected(recovery.stopped);
  record.formed_ms = since_detected(recovery.formed);
  record.synced_ms = since_detected(recovery.synced);
  record.step_ms = since_detected(recovery.step);
  return record;
}

}  // namespace

RunRecorder::RunRecorder(const Job& job, RunDirectory& directory, RunListener& listener,
                         RunHistory history, CommandHandler on_other_command)
    : job_(job),
      directory_(directory),
      listener_(listener),
      on_other_command_(std::move(on_other_command)),
      member_logs_(job.config.run_dir),
      history_(std::move(history)),
      goes_on_(history_.views > 0),
      roles_(roles_in(job.config)) {}

void RunRecorder::on_note(Instant, const elastic::coordinator_effect::Note& note) {
  const std::lock_guard output(output_mutex_);
  std::vector<std::pair<std::string, std::string>> fields;
  if (note.member.has_value()) {
    fields.emplace_back("member", json_number(value(*note.member)));
  }
  fields.emplace_back("detail", json_string(note.detail));
  if (note.kind == "restarted") {
    restart_ = note.detail;  // the view that follows says the step
    return;
  }
  directory_.event(note.kind, fields);
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
  const std::lock_guard lock(output_mutex_);
  directory_.event(kind, {{"detail", json_string(detail)}});
  listener_.on_event(detail);
}

void RunRecorder::fact(const std::string& kind,
                       const std::vector<std::pair<std::string, std::string>>& fields,
                       const std::string& line) {
  const std::lock_guard lock(output_mutex_);
  directory_.event(kind, fields);
  if (!line.empty()) {
    listener_.on_event(line);
  }
}

void RunRecorder::on_view(Instant, const elastic::View& view) {
  const std::lock_guard output(output_mutex_);
  std::vector<std::uint64_t> ids;
  for (const elastic::ViewMember& member : view.members) {
    ids.push_back(value(member.id));
  }
  const std::string members = fmt::format("[{}]", fmt::join(ids, ","));
  const std::vector<std::pair<std::uint64_t, std::string>> stays = hosts_of(ids);
  std::vector<std::string> hosts;
  for (const auto& [id, host] : stays) {
    hosts.push_back(json_string(host));
  }
  bool is_new = false;
  std::uint64_t undone = 0;
  std::optional<PsServersNews> servers;
  {
    const std::lock_guard lock(mutex_);
    is_new = history_.view_published(value(view.id), members);
    servers = roles_ ? roles_->follow(view) : std::nullopt;
    if (is_new && !roles_) {
      undone = restart_ ? history_.restart(value(view.committed), job_.config.global_batch) : 0;
      history_.has_state_of(value(view.committed), "");
    }
    if (is_new) {
      history_.took_part(value(view.committed), stays);
    }
  }
  if (!is_new) {
    return;  // the coordinator before this one told it
  }
  if (restart_) {
    record_restart(*std::exchange(restart_, std::nullopt), value(view.committed), undone);
  }
  directory_.event("view", {{"view", json_number(value(view.id))},
                            {"committed", json_number(value(view.committed))},
                            {"members", members},
                            {"hosts", json_array(hosts)}});
  if (servers) {
    record(*servers, view.id);
  }
}

/// With the host that each is on, as far as it has said it.
std::vector<std::pair<std::uint64_t, std::string>> RunRecorder::hosts_of(
    const std::vector<std::uint64_t>& ids) const {
  std::map<std::uint64_t, std::string> known;
  if (server_ != nullptr) {
    for (const elastic::MemberStatus& member : server_->status().members) {
      known[value(member.id)] = member.host;
    }
  }
  std::vector<std::pair<std::uint64_t, std::string>> hosts;
  for (const std::uint64_t id : ids) {
    hosts.emplace_back(id, known[id]);
  }
  return hosts;
}

/// The steps are computed again, with the same bits; their records stay.
void RunRecorder::record_restart(const std::string& reason, std::uint64_t step,
                                 std::uint64_t undone) {
  directory_.event("restarted", {{"step", json_number(step)},
                                 {"undone_steps", json_number(undone)},
                                 {"undone_samples", json_number(undone * job_.config.global_batch)},
                                 {"detail", json_string(reason)}});
  listener_.on_event(reason);
}

void RunRecorder::on_recovery(const elastic::Recovery& recovery) {
  const RecoveryRecord record = record_of(recovery);
  const std::lock_guard output(output_mutex_);
  directory_.recovery(record);
  listener_.on_event(sentence_of(record));
  const std::lock_guard lock(mutex_);
  recoveries_.push_back(recovery);
  history_.recoveries.push_back(record);
}

void RunRecorder::on_join(const elastic::Join& join) {
  const auto since_connected = [&join](Instant t) {
    return json_number(to_ms(t - join.connected));
  };
  const std::lock_guard output(output_mutex_);
  directory_.event("join", {{"member", json_number(value(join.member))},
                            {"admitted_after", json_number(value(join.admitted_after))},
                            {"started_after", json_number(value(join.started_after))},
                            {"snapshots", json_number(std::uint64_t{join.snapshots})},
                            {"ready_ms", since_connected(join.ready)},
                            {"admitted_ms", since_connected(join.admitted)},
                            {"caught_up_ms", since_connected(join.caught_up)},
                            {"promoted_ms", since_connected(join.promoted)},
                            {"step_ms", since_connected(join.step)}});
  const std::lock_guard lock(mutex_);
  joins_.push_back(join);
}

void RunRecorder::on_report(MemberId member, ByteSpan payload) {
  const Result<Record> record = decode_record(payload);
  if (!record.ok()) {
    log::warning(fmt::format("member {}: {}", value(member), record.error().detail));
    return;
  }
  const std::lock_guard output(output_mutex_);
  if (const auto* log = std::get_if<LogRecord>(&record.value())) {
    member_logs_.append(member, *log);
  }
  std::visit([this](const auto& r) { receive(r); }, record.value());
}

void RunRecorder::receive(const StepRecord& record) {
  const StepMetric metric = metric_of(record, job_.epochs_at(record.step));
  {
    const std::lock_guard lock(mutex_);
    RunHistory& h = history_;
    if (h.is_undone(record.step, record.view)) {
      return;
    }
    if (record.step >= h.current_step) {
      h.reached(record.step, record.digest);
    }
    if (record.step <= h.last_step && h.missing.erase(record.step) == 0) {
      return;  // repeated after a change of view, or of the coordinator
    }
    for (std::uint64_t step = h.last_step + 1; h.last_step > 0 && step < record.step; ++step) {
      h.missing.insert(step);  // another member's report of it is on its way
    }
    const Instant now = monotonic_now();
    if (h.last_step == 0) {
      h.first_step = record.step;
      first_commit_ = now;
    }
    images_per_second_ = metric.images_per_second;
    h.last_step = std::max(h.last_step, record.step);
    last_commit_ = now;
    h.samples += record.samples;
    h.skipped_steps += record.skipped ? 1 : 0;
    h.retried_steps += record.attempts > 1 ? 1 : 0;
    h.train_seconds += record.seconds;
    // The first step is not part of the training time either.
    h.data_wait_seconds += record.seconds > 0 ? record.wait_ms / 1000 : 0;
  }
  directory_.metric(metric);
  listener_.on_step(metric, job_.total_steps);
  if (metric.skipped && metric.loss_scale) {
    directory_.event("update_skipped", {{"step", json_number(metric.step)},
                                        {"loss_scale", json_number(*metric.loss_scale)}});
    listener_.on_event(sentence_of_skip(metric));
  }
}

void RunRecorder::receive(const EvaluationRecord& record) {
  const double top1 = static_cast<double>(record.correct) / static_cast<double>(record.samples);
  {
    const std::lock_guard lock(mutex_);
    if (history_.evaluation.has_value() && history_.evaluation->step >= record.step) {
      return;
    }
    history_.evaluation = {record.step, top1, record.loss};
  }
  directory_.evaluation(record.step, top1, record.loss);
  listener_.on_event(fmt::format("step {}: test accuracy {:.2f} %, test loss {:.4f}", record.step,
                                 100 * top1, record.loss));
}

void RunRecorder::receive(const CheckpointRecord& record) {
  {
    const std::lock_guard lock(mutex_);
    if (record.ok && !history_.checkpoints.insert(record.step).second) {
      return;  // repeated to a coordinator that was started again
    }
    if (record.ok && (!newest_here_ || value(*newest_here_) < record.step)) {
      history_.last_checkpoint = record.text;
    } else if (!record.ok) {
      unsaved_ = record;
    }
  }
  directory_.event(record.ok ? "checkpoint" : "checkpoint_failed",
                   {{"step", json_number(record.step)}, {"detail", json_string(record.text)}});
  if (record.ok) {
    checkpoint_failures_.is_over();
  } else if (checkpoint_failures_.is_news(record.text)) {
    listener_.on_event(record.text + (record.step < job_.total_steps ? "; training goes on" : ""));
  }
}

void RunRecorder::serve_transfers(TransferHandler handler) {
  const std::lock_guard lock(transfer_mutex_);
  on_transfer_ = std::move(handler);
}

void RunRecorder::on_transfer(UniqueFd socket, std::string host) {
  const std::lock_guard lock(transfer_mutex_);
  if (on_transfer_) {
    on_transfer_(std::move(socket), std::move(host));
  }
}

void RunRecorder::checkpoint_received(const ReceivedCheckpoint& received) {
  const std::lock_guard output(output_mutex_);
  {
    const std::lock_guard lock(mutex_);
    newest_here_ = received.step;
    history_.last_checkpoint = received.path;
  }
  if (received.bytes == 0) {
    return;  // the worker has written it here
  }
  directory_.event("checkpoint_received", {{"step", json_number(value(received.step))},
                                           {"host", json_string(received.host)},
                                           {"bytes", json_number(received.bytes)},
                                           {"ms", json_number(to_ms(received.took))},
                                           {"path", json_string(received.path)}});
  listener_.on_event(fmt::format("checkpoint of step {} from {}: {}", value(received.step),
                                 received.host, received.path));
}

void RunRecorder::checkpoint_refused(const std::string& why) {
  const std::lock_guard output(output_mutex_);
  directory_.event("checkpoint_refused", {{"detail", json_string(why)}});
  if (refusals_.is_news(why)) {
    log::warning(why);
    listener_.on_event(why);
  }
}

void RunRecorder::checkpoint_copied(Step step, const std::string& where, Duration took) {
  const std::lock_guard output(output_mutex_);
  directory_.event("checkpoint_copied", {{"step", json_number(value(step))},
                                         {"to", json_string(where)},
                                         {"ms", json_number(to_ms(took))}});
  copy_failures_.is_over();
}

void RunRecorder::checkpoint_not_copied(const std::string& why) {
  const std::lock_guard output(output_mutex_);
  directory_.event("checkpoint_not_copied", {{"detail", json_string(why)}});
  if (copy_failures_.is_news(why)) {
    listener_.on_event(why);
  }
}

void RunRecorder::receive(const FatalRecord& record) {
  directory_.event("fatal", {{"detail", json_string(record.reason)}});
  server_->fail(record.reason);
}

void RunRecorder::receive(const WorkerRecord& record) {
  directory_.event("worker_done", {{"steps", json_number(record.steps)},
                                   {"loader_wait_ms", json_number(record.loader_wait_ms)}});
}

void RunRecorder::receive(const NoteRecord& record) {
  directory_.event(record.kind, {{"detail", json_string(record.detail)}});
}

void RunRecorder::receive(const StateRecord& record) {
  {
    const std::lock_guard lock(mutex_);
    if (record.step >= history_.current_step) {
      history_.has_state_of(record.step, record.digest);
    }
  }
  directory_.event("state",
                   {{"step", json_number(record.step)}, {"digest", json_string(record.digest)}});
}

void RunRecorder::receive(const FallBackRecord& record) {
  std::uint64_t undone = 0;
  {
    const std::lock_guard lock(mutex_);
    if (record.at <= history_.fell_back_at) {
      return;  // repeated by the follower of a lost shard
    }
    history_.fell_back_at = record.at;
    history_.fell_back_to = record.step;
    undone = history_.fall_back(record.step, job_.config.global_batch);
  }
  directory_.event("fell_back", {{"step", json_number(record.step)},
                                 {"at", json_number(record.at)},
                                 {"undone_steps", json_number(undone)},
                                 {"undone_samples", json_number(undone * job_.config.global_batch)},
                                 {"detail", json_string(record.reason)}});
  listener_.on_event(
      fmt::format("training diverged at step {} ({}): back to the state after step {}, and on with "
                  "bsp; {} steps are undone and done again",
                  record.step + undone, record.reason, record.step, undone));
}

elastic::CommandReply RunRecorder::on_command(const elastic::Command& command) {
  return on_other_command_(*server_, command);
}

void RunRecorder::on_ended(elastic::Outcome outcome, const std::string& detail) {
  {
    const std::lock_guard lock(mutex_);
    end_ = JobEnd{outcome, detail};
  }
  ended_.notify_all();
}

void RunRecorder::costs(double spent) {
  const std::lock_guard lock(mutex_);
  cost_ = spent;
}

std::optional<double> RunRecorder::cost() const {
  const std::lock_guard lock(mutex_);
  return cost_;
}

bool RunRecorder::has_heard_of_checkpoint(Step step) const {
  const std::lock_guard lock(mutex_);
  return history_.checkpoints.contains(value(step));
}

std::string RunRecorder::last_checkpoint() const {
  const std::lock_guard lock(mutex_);
  return history_.last_checkpoint;
}

std::uint64_t RunRecorder::last_step() const {
  const std::lock_guard lock(mutex_);
  return history_.current_step;
}

std::vector<elastic::Recovery> RunRecorder::recoveries() const {
  const std::lock_guard lock(mutex_);
  return recoveries_;
}

double RunRecorder::images_per_second() const {
  const std::lock_guard lock(mutex_);
  return images_per_second_;
}

std::vector<elastic::Join> RunRecorder::joins() const {
  const std::lock_guard lock(mutex_);
  return joins_;
}

std::optional<JobEnd> RunRecorder::end() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

std::optional<JobEnd> RunRecorder::wait_for_end_or_news(Instant deadline) {
  std::unique_lock lock(mutex_);
  ended_.wait_for(lock, std::max(Duration(0), deadline - monotonic_now()),
                  [this] { return end_.has_value() || has_news_; });
  has_news_ = false;
  return end_;
}

}  // namespace mayfly::engine
