#include "engine/processes/coordinator_process.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <future>

#include "base/file.hpp"
#include "base/log.hpp"
#include "base/try_assign.hpp"
#include "elastic/core/messages.hpp"
#include "elastic/net/flight_recorder.hpp"
#include "elastic/net/job_token.hpp"
#include "engine/config/bind_host.hpp"
#include "engine/config/derived_settings.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/membership/exit_codes.hpp"
#include "engine/membership/job_settings.hpp"
#include "engine/membership/run_place.hpp"
#include "engine/network/prepare_job.hpp"
#include "engine/processes/coordinator_options.hpp"
#include "engine/reduction/model_layout.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/job_facts.hpp"
#include "engine/run/record_json.hpp"
#include "engine/run/run_directory.hpp"
#include "engine/run/trace.hpp"
#include "engine/state/starting_state.hpp"
#include "engine/training/backend.hpp"

namespace mayfly::engine {
namespace {

Result<Bytes> read_or_make_token(const JobConfig& config) {
  Result<Bytes> there = read_job_token(config);
  if (there.ok() || there.error().code != Errc::kNotFound) {
    return there;
  }
  Bytes token = elastic::make_token(config.tls);
  TRY(elastic::write_token_file(config.token_file, token));
  return token;
}

int exit_code_of_outcome(elastic::Outcome outcome) {
  switch (outcome) {
    case elastic::Outcome::kDone: return kExitDone;
    case elastic::Outcome::kStopped: return kExitStopped;
    case elastic::Outcome::kFailed: return kExitFailed;
    case elastic::Outcome::kTooFewWorkers: return kExitTooFewWorkers;
  }
  UNREACHABLE("every outcome has an exit code");
}

/// Keeps the recorded settings that must not change in a continued job.
Result<void> take_over(JobConfig& config) {
  TRY_ASSIGN(const JobConfig recorded, config_of_run(config.run_dir));
  TRY_ASSIGN(config, config_to_continue_with(config, recorded));
  return {};
}

/// Every worker would refuse wrong initial weights; this check reports them before anything is
/// started. Returns a remark about them for the user. A program checks its own weights itself.
Result<std::string> try_starting_state(const Job& job) {
  if (is_program(job.config)) {
    return std::string();
  }
  TRY_ASSIGN(StartingState start, starting_state(job, layout_of(job.model)));
  return std::move(start.remark);
}

}  // namespace

bool is_nothing_left(const Job& job, std::uint64_t step) {
  const std::string& run_dir = job.config.run_dir;
  return !job.config.resume.empty() && step >= job.total_steps &&
         (has_done_summary(run_dir) || !std::filesystem::exists(run_dir + "/events.jsonl"));
}

Result<std::unique_ptr<CoordinatorProcess>> CoordinatorProcess::start(
    JobConfig config, RunListener& listener, Unfinished unfinished, ScaleHandler on_scale,
    std::optional<LockFile> lock, Facts facts) {
  if (!lock) {
    TRY_ASSIGN(lock, lock_run_directory(config));
  }
  lock->sign();
  std::unique_ptr<CoordinatorProcess> process(
      new CoordinatorProcess(listener, std::move(on_scale), *std::move(lock), facts));
  const Result<void> opened = process->open(std::move(config), unfinished);
  if (opened.ok() && process->server_ != nullptr) {
    return process;
  }
  undo(std::move(process));
  return opened.ok() ? Result<std::unique_ptr<CoordinatorProcess>>(nullptr)
                     : Result<std::unique_ptr<CoordinatorProcess>>(opened.error());
}

/// Opens everything in order. Does not start the server if nothing is left to do.
Result<void> CoordinatorProcess::open(JobConfig config, Unfinished unfinished) {
  resolve_defaults(config);
  start_files_ = std::make_unique<StartFiles>(config.run_dir, config.token_file);
  TRY(open_view_log(config.run_dir, unfinished));
  TRY(prepare(std::move(config)));
  if (!continues_ && !lacks_facts_ && is_nothing_left(*job_, starting_point_.step)) {
    listener_.on_nothing_left(
        fmt::format("nothing is left to do: {} is of step {}, the job's last is {}",
                    job_->config.resume, starting_point_.step, job_->total_steps));
    return {};
  }
  if (!continues_) {  // the log of a continued job must never be restored to earlier contents
    start_files_->keep_contents();
  }
  TRY(open_run_directory());
  if (!start_remark_.empty() && !continues_) {
    note("init", start_remark_);
  }
  if (const datasets::LeftOut& images = job_->facts.left_out; images.count > 0 && !continues_) {
    // Opening the data has printed it on the terminal; workers with other data are refused.
    recorder_->fact({"images_left_out", {{"images", object_of(images)}}, ""});
  }
  return start_server();
}

void CoordinatorProcess::undo(std::unique_ptr<CoordinatorProcess> process) {
  const std::unique_ptr<StartFiles> files = std::move(process->start_files_);
  LockFile lock = std::move(process->lock_);
  process.reset();
  files->take_back();
  std::move(lock).discard();
}

Result<void> CoordinatorProcess::open_view_log(const std::string& run_dir, Unfinished unfinished) {
  const std::string path = view_log_path(run_dir);
  // A coordinator that was killed before it had written config.toml has not begun a job.
  const bool is_new =
      !std::filesystem::exists(path) || !std::filesystem::exists(run_dir + "/config.toml");
  Result<std::unique_ptr<elastic::DurableViewLog>> opened = elastic::DurableViewLog::open(path);
  if (!opened.ok()) {
    const std::string advice =
        "; to start the job again from a checkpoint, remove that file and use --resume " + run_dir;
    const bool is_corrupt = opened.error().code == Errc::kCorrupt;
    return Error{opened.error().code, opened.error().detail + (is_corrupt ? advice : "")};
  }
  view_log_ = std::move(opened).value();
  const bool has_ended = view_log_->contents().ended.has_value();
  continues_ =
      unfinished == Unfinished::kContinue && !is_new && (!has_ended || !has_summary(run_dir));
  only_ends_ = continues_ && has_ended;
  return {};
}

/// Determines the job and the state that it starts from, before anything is written.
Result<void> CoordinatorProcess::prepare(JobConfig config) {
  if (continues_) {
    TRY(take_over(config));
  }
  TRY(check_spares(config));
  TRY(check_servers(config));
  TRY(check_backups(config));
  // The nccl transport needs a GPU, which this host must have only if the workers run here.
  if (facts_ == Facts::kHere || !reduces_on_device(config)) {
    TRY(check_backend(config));
  }
  // The checkpoint may have been removed after newer ones were written to the same folder.
  const bool may_be_gone = continues_ && view_log_->contents().view.has_value();
  if (!config.resume.empty()) {
    const Result<LoadedCheckpoint> loaded = load_intact_checkpoint(config.resume);
    if (loaded.ok()) {
      skipped_checkpoints_ = loaded.value().passed_over;
      if (!skipped_checkpoints_.empty()) {
        listener_.on_event(skipped_checkpoints_);
      }
      config.resume = continues_ ? config.resume : loaded.value().path;  // "latest" means this now
      starting_point_ = {value(loaded.value().info.committed),
                         to_string(loaded.value().info.digest)};
    } else if (!may_be_gone) {
      return loaded.error();
    }
  }
  Result<std::unique_ptr<Job>> job = prepare_job(config);
  if (job.ok()) {
    job_ = std::move(job).value();
  } else if (!lacks_data_or_device(config) || (facts_ == Facts::kHere && !is_program(config))) {
    return std::move(job).error();
  } else {
    TRY(prepare_without_data(config, job.error()));
  }
  TRY(check_copies());
  if (!lacks_facts_) {
    Result<std::string> tried = try_starting_state(*job_);
    if (tried.ok()) {
      start_remark_ = std::move(tried).value();
    } else if (!may_be_gone) {
      return std::move(tried).error();
    }
  }
  return {};
}

/// Prepares the job with the recorded facts, or as far as is possible before the first worker sends
/// them. A standby receives no facts, and a job that has begun must have recorded them.
Result<void> CoordinatorProcess::prepare_without_data(const JobConfig& config, const Error& lack) {
  TRY_ASSIGN(job_, begin_job(config));
  const bool has_begun = continues_ && view_log_->contents().job != 0;
  lacks_facts_ = is_program(config) && !has_begun;  // a resumed program may set more steps
  if (lacks_facts_) {
    return {};
  }
  Result<JobFacts> facts = facts_on_record(config.run_dir, has_begun ? "" : config.resume);
  if (facts.ok()) {
    return complete_job(*job_, std::move(facts).value());
  }
  const bool is_new = config.resume.empty() && !view_log_->contents().view;
  if (facts.error().code != Errc::kNotFound || config.standby || !is_new) {
    return facts.error().code == Errc::kNotFound ? lack : facts.error();
  }
  lacks_facts_ = true;
  listener_.on_event(lack.detail + "; workers are admitted when the first has reported it");
  return {};
}

Result<void> CoordinatorProcess::keep_facts(const JobFacts& facts) const {
  return write_file_atomic(facts_path(job_->config.run_dir), to_json(facts) + "\n");
}

/// Called on the thread of transfers before any worker is admitted. Other threads read only
/// `job_->config` meanwhile.
Result<void> CoordinatorProcess::take_facts(const JobFacts& facts) {
  const std::string sentence = sentence_of(facts, job_->config);
  TRY_ASSIGN(std::unique_ptr<Job> tried, begin_job(job_->config));
  TRY(complete_job(*tried, facts));
  TRY(elastic::check_fingerprint(tried->fingerprint));
  TRY(try_starting_state(*tried));
  TRY(keep_facts(facts));  // before any worker is admitted
  bool is_complete = false;
  auto called = std::make_shared<std::promise<void>>();
  const std::future<void> answer = called->get_future();
  server_->begin([this, &facts, &is_complete, called = std::move(called)] {
    is_complete = complete_job(*job_, facts).ok();
    return core_options(*job_, Step{starting_point_.step}, is_standby_);
  });
  answer.wait();  // until the server has called the function, or dropped it as the job has ended
  if (!is_complete) {
    return Error{Errc::kRefused, "the job is over"};
  }
  recorder_->note("data", sentence);
  return {};
}

Result<void> CoordinatorProcess::open_run_directory() {
  const JobConfig& config = job_->config;
  TRY_ASSIGN(directory_, continues_ ? RunDirectory::reopen(config)
                                    : RunDirectory::create(config, starting_point_));
  TRY(continues_ ? view_log_->go_on() : view_log_->begin());
  std::error_code absent;
  std::filesystem::remove(summary_path(config.run_dir), absent);  // of the job before --resume
  TRY_ASSIGN(RunHistory history,
             continues_ ? read_run_history(config.run_dir) : history_of_new_part(config.run_dir));
  if (starting_point_.digest.empty()) {  // not resumed, or the checkpoint was removed
    starting_point_ = history.start;
  }
  history.start = starting_point_;
  if (!continues_ && !config.trace.empty()) {  // the traces are those of the job before --resume
    start_files_->set_aside(config.run_dir + "/trace");
  }
  elastic::FlightRecorder::write_on_fatal_signals();
  log::open("coordinator", job_->config.run_dir + "/logs/coordinator.log", log::Level::kWarning);
  recorder_ = std::make_unique<RunRecorder>(
      *job_, *directory_, listener_, std::move(history),
      RunRecorder::Hooks{
          [this](const elastic::CoordinatorServer& server, const elastic::Command& command) {
            return answer(server, command);
          },
          [this](UniqueFd socket, std::string host) {
            (void)take_transfer_.call(std::move(socket), std::move(host));
          }});
  return {};
}

Result<void> CoordinatorProcess::start_server() {
  const JobConfig& config = job_->config;
  TRY_ASSIGN(Bytes token, read_or_make_token(config));
  TRY_ASSIGN(std::string host, coordinator_host(config));
  elastic::CoordinatorServerOptions options;
  options.advertise = advertised_host(host);
  options.host = std::move(host);
  options.port = config.port == 0 && continues_ ? port_of_run(config.run_dir) : config.port;
  options.token = std::move(token);
  const elastic::LogContents& log = view_log_->contents();
  is_standby_ = config.standby && !log.view && !log.ended;
  options.begins_later = lacks_facts_;
  if (!lacks_facts_) {
    options.core = core_options(*job_, Step{starting_point_.step}, is_standby_);
  }
  options.flight_path = config.run_dir + "/logs/flight-coordinator.log";
  if (continues_) {
    announce_return();
  }
  TRY(listener_.on_begun(config));
  options.view_log = std::move(view_log_);
  evaluations_ = std::make_unique<EvaluationService>(
      job_->config.run_dir,
      EvaluationService::Hooks{
          [this] { return server_->status().in_charge; },
          [this](const EvaluatorStatus& evaluator) { recorder_->fact(fact_of_joined(evaluator)); },
          [this](const EvaluatorStatus& evaluator, const std::string& why) {
            recorder_->fact(fact_of_left(evaluator, why));
          },
          [this](const Evaluation& evaluation) { recorder_->fact(fact_of(evaluation)); }});
  TRY_ASSIGN(server_, elastic::start_coordinator(std::move(options), *recorder_));
  const std::optional<Step> newest = newest_received();
  begin_copies();
  begin_transfers(newest);
  TRY(lacks_facts_ ? Result<void>() : keep_facts(job_->facts));
  return write_file_atomic(config.run_dir + "/coordinator", server_->endpoint() + "\n");
}

/// Checks the destination of --checkpoint-to. A run that is resumed with other settings may
/// continue in a destination with checkpoints of its earlier settings.
Result<void> CoordinatorProcess::check_copies() const {
  const JobConfig& config = job_->config;
  const bool may_hold_others = continues_ || lacks_facts_ || !config.resume.empty();
  return config.checkpoint_to.empty()
             ? Result<void>()
             : check_copy_target(copy_target_of(config),
                                 may_hold_others ? Fingerprint() : job_->fingerprint);
}

void CoordinatorProcess::begin_copies() {
  const JobConfig& config = job_->config;
  if (config.checkpoint_to.empty()) {
    return;
  }
  copier_ = std::make_unique<CheckpointCopier>(
      config, CheckpointCopier::Hooks{
                  [this](Step step, const std::string& where, Duration took) {
                    recorder_->checkpoint_copied(step, where, took);
                  },
                  [this](const std::string& why) { recorder_->checkpoint_not_copied(why); }});
  if (continues_) {  // the previous coordinator may have died before it had copied the newest
    const Result<LoadedCheckpoint> newest = load_checkpoint(config.run_dir);
    if (newest.ok()) {
      copier_->copy(newest.value().info.committed, newest.value().path);
    }
  }
}

/// Completes the copies. A job whose last checkpoint could not be copied has failed.
void CoordinatorProcess::finish_copies(JobEnd& end, bool has_result) {
  if (copier_ == nullptr) {
    return;
  }
  const Result<void> copied = copier_->finish();
  copier_.reset();
  if (!copied.ok() && has_result) {
    end.outcome = elastic::Outcome::kFailed;
    end.detail =
        "the last checkpoint is in " + job_->config.run_dir +
        "/checkpoints, but not at the destination of --checkpoint-to: " + copied.error().detail;
  }
}

/// The step of the newest intact checkpoint written since --resume. Sets damaged ones aside.
std::optional<Step> CoordinatorProcess::newest_received() const {
  if (!continues_ && skipped_checkpoints_.empty()) {
    return std::nullopt;
  }
  const Result<LoadedCheckpoint> newest = set_damaged_aside(job_->config.run_dir + "/checkpoints");
  if (newest.ok() && !newest.value().passed_over.empty() &&
      newest.value().passed_over != skipped_checkpoints_) {
    recorder_->checkpoint_refused(newest.value().passed_over);
  }
  const bool is_of_this_part =
      newest.ok() && recorder_->progress().has_checkpoint(newest.value().info.committed);
  return is_of_this_part ? std::optional(newest.value().info.committed) : std::nullopt;
}

void CoordinatorProcess::begin_transfers(std::optional<Step> newest) {
  data_sender_ = std::make_unique<DataSender>(job_->config.data, job_->facts.data_digest);
  receiver_ = std::make_unique<CheckpointReceiver>(
      *job_, starting_point_, newest, settings_to_send(job_->config),
      CheckpointReceiver::Hooks{
          [this](const ReceivedCheckpoint& received) {
            recorder_->checkpoint_received(received);
            if (copier_ != nullptr && server_->status().in_charge) {
              copier_->copy(received.step, received.path);
            }
          },
          [this](const std::string& why) { recorder_->checkpoint_refused(why); },
          [this] { return step_without_holder(); }, [this] { return step_of_holders(); },
          lacks_facts_ ? [this](const JobFacts& facts) { return take_facts(facts); }
                       : std::function<Result<void>(const JobFacts&)>(),
          [this](UniqueFd socket, std::string host) {
            data_sender_->take(std::move(socket), std::move(host));
          },
          [this](UniqueFd socket, std::string host, std::string machine) {
            evaluations_->take(std::move(socket), std::move(host), std::move(machine));
          },
          [this](const std::string& machine) { return machine_toml_.call(machine).value_or(""); },
          [this] { return server_->status().in_charge; }});
  take_transfer_.set([this](UniqueFd socket, std::string host) {
    receiver_->take(std::move(socket), std::move(host));
  });
}

void CoordinatorProcess::set_machine_settings(
    std::function<std::string(const std::string& machine)> toml_of) {
  machine_toml_.set(std::move(toml_of));
}

void CoordinatorProcess::end_transfers() {
  if (receiver_ != nullptr) {
    take_transfer_.set(nullptr);
    receiver_.reset();
    data_sender_.reset();
    evaluations_->close();
  }
}

/// The newest step that a checkpoint may have, if no member has the job's state. A member has it if
/// it was in a view, or has committed steps after the job's start, and was not dismissed. Lost
/// members may not have reported their last steps.
std::optional<Step> CoordinatorProcess::step_without_holder() const {
  const elastic::JobStatus status = server_->status();
  const bool is_held = std::ranges::any_of(status.members, [this](const auto& member) {
    using enum elastic::MemberPhase;
    const bool has_begun = member.phase == kActive || member.phase == kReturning ||
                           member.phase == kLeaving ||
                           member.committed > Step{starting_point_.step};
    return has_begun && !member.is_dismissed;
  });
  if (is_held || !status.in_charge) {
    return std::nullopt;
  }
  if (status.view == ViewId{}) {
    return job_->config.resume.empty() ? std::nullopt : std::optional(Step{starting_point_.step});
  }
  if (job_->config.resume.empty()) {  // all checkpoints are this job's; records may have been lost
    return Step{job_->total_steps};
  }
  return std::max(
      {status.committed, Step{starting_point_.step}, Step{recorder_->progress().last_step()}});
}

/// Considers only members that are connected to this coordinator, because the records of its
/// predecessor may be out of date.
std::optional<Step> CoordinatorProcess::step_of_holders() const {
  const elastic::JobStatus status = server_->status();
  const bool is_held =
      status.in_charge && std::ranges::any_of(status.members, [](const auto& member) {
        return member.phase == elastic::MemberPhase::kActive;
      });
  return is_held
             ? std::optional(std::max(status.committed, Step{recorder_->progress().last_step()}))
             : std::nullopt;
}

void CoordinatorProcess::announce_return() {
  const elastic::LogContents& log = view_log_->contents();
  if (only_ends_) {
    note("coordinator_restarted",
         fmt::format("job {:016x} has ended, step {} on record; notifying members that return",
                     log.job, recorder_->progress().last_step()));
    return;
  }
  const std::size_t members = log.view ? log.view->members.size() : 0;
  note("coordinator_restarted",
       log.view
           ? fmt::format("resuming job {:016x} at view {}, step {} on record, waiting for {} "
                         "members",
                         log.job, value(log.view->id), recorder_->progress().last_step(), members)
           : "resuming a job that has had no members yet");
}

int CoordinatorProcess::finish(JobEnd end) {
  end_transfers();
  server_.reset();
  if (const JobConfig& config = job_->config; !config.trace.empty()) {
    const std::string file = config.trace == "auto" ? config.run_dir + "/trace.json" : config.trace;
    if (Result<void> merged = merge_traces(config.run_dir + "/trace", file); !merged.ok()) {
      log::warning("no trace: " + merged.error().detail);
    }
  }
  const bool has_result =
      end.outcome == elastic::Outcome::kDone || end.outcome == elastic::Outcome::kStopped;
  if (const std::optional<std::string> unsaved = recorder_->progress().unsaved_state();
      has_result && unsaved.has_value()) {
    end.outcome = elastic::Outcome::kFailed;
    end.detail = *unsaved;
  }
  finish_copies(end, has_result);
  if (!recorder_->write_summary(end) && has_result) {
    end.outcome = elastic::Outcome::kFailed;
  }
  std::error_code ignored;
  std::filesystem::remove(job_->config.run_dir + "/coordinator", ignored);
  return end.was_refused ? kExitUsage : exit_code_of_outcome(end.outcome);
}

}  // namespace mayfly::engine
