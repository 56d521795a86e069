#include "engine/program/program_worker.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/absolute_path.hpp"
#include "base/check.hpp"
#include "base/digest.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "base/try_assign.hpp"
#include "base/unique_fd.hpp"
#include "cloud_hooks/local_provider.hpp"
#include "datasets/core/sample_stream.hpp"
#include "elastic/core/messages.hpp"
#include "elastic/net/handshake.hpp"
#include "engine/config/bind_host.hpp"
#include "engine/job/derive_job.hpp"
#include "engine/membership/job_settings.hpp"
#include "engine/membership/run_place.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/training/backend.hpp"
#include "engine/transfers/better_state.hpp"
#include "engine/transfers/checkpoint_transfer.hpp"
#include "nn/safetensors.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kJobFileBytesMax = std::size_t{1} << 20;
constexpr std::size_t kFailedSamplesMax = 10'000;  // as many as a report has room for
constexpr Duration kReportTimeout = seconds(1);
constexpr std::size_t kKeptNotesMax = 1000;

/// Replaces kNotFound by kInvalidInput: kNotFound must only mean that no coordinator is named,
/// because then the program starts a job of its own, which it must not do if a file is missing.
Error not_absence(Error error) {
  const bool is_absence = error.code == Errc::kNotFound;
  return {is_absence ? Errc::kInvalidInput : error.code, std::move(error.detail)};
}

/// The settings of the job, from the coordinator or from a file on the same machine.
Result<JobConfig> obtain_settings(const JobConfig& own, const std::string& job_file) {
  if (job_file.empty()) {
    return ask_for_job_settings(own);
  }
  JobConfig config;
  TRY_ASSIGN(const std::string text, read_text_file(job_file, kJobFileBytesMax));
  TRY(apply_toml(config, text, job_file));
  return config;
}

/// The settings of the job whose coordinator `environment` names, overridden by the worker's own.
Result<JobConfig> settings_of(const std::map<std::string, std::string>& environment) {
  JobConfig own;
  TRY(apply_environment(own, environment));
  const auto file = environment.find(kJobFileVariable);
  const std::string job_file = file == environment.end() ? "" : file->second;
  if (job_file.empty() && own.coordinator.empty()) {
    return Error{Errc::kNotFound,
                 "no coordinator is named: start the program with `mayfly run -- PROGRAM`, or set "
                 "MAYFLY_COORDINATOR and MAYFLY_TOKEN_FILE"};
  }
  Result<JobConfig> settings = obtain_settings(own, job_file);
  if (!settings.ok()) {
    return not_absence(std::move(settings).error());
  }
  JobConfig config = std::move(settings).value();
  TRY(apply_environment(config, environment));
  if (!is_program(config)) {
    return Error{Errc::kRefused,
                 fmt::format("the job at {} trains the network {}, not programs; start it with "
                             "`mayfly run` or `mayfly coordinator --model {}`",
                             config.coordinator, config.model, kProgramModel)};
  }
  return config;
}

/// A text for the fingerprint, short enough for a Hello even if the names are many and long.
std::string text_of(const std::vector<std::string>& sums) {
  Digester digester;
  for (const std::string& name : sums) {
    digester.add_value(name.size());
    digester.add(std::as_bytes(std::span(name)));
  }
  return sums.empty() ? ""
                      : fmt::format("{}, whose names have the digest {}", sums.size(),
                                    to_string(digester.finish()));
}

JobFacts facts_of(const ProgramJob& program, const ProgramTensors& tensors) {
  JobFacts facts;
  facts.data = program.data_name;
  facts.train_samples = program.train_samples;
  facts.program.steps = program.steps;
  facts.program.global_batch = program.global_batch;
  facts.program.microbatch = program.microbatch;
  facts.program.test_samples = program.test_samples;
  facts.program.sums = program.sums;
  facts.program.tensors = tensors.part_names();
  facts.program.equals = program.equals;
  facts.program.equals.emplace_back("tensors", to_string(tensors.layout_digest()));
  facts.program.equals.emplace_back("initial values (seed the model alike on all workers)",
                                    to_string(tensors.content_digest()));
  facts.program.equals.emplace_back("bytes of the optimizer",
                                    fmt::format("{}", program.optimizer_bytes_max));
  facts.program.equals.emplace_back("test chunk", fmt::format("{}", program.test_chunk));
  facts.program.equals.emplace_back("sums of an evaluation", text_of(program.sums));
  return facts;
}

/// Limited because a member whose state differs from that of others sends a hash of each tensor,
/// and because the header of a checkpoint lists all tensors.
constexpr std::size_t kTensorsMax = 60'000;

constexpr std::uint64_t kTestChunksMax = std::uint64_t{1} << 32;  // their numbers have 32 bits

/// Checks that checkpoints can be read: a larger one could be written, but not read.
Result<void> check_size(const ProgramJob& program, const ProgramTensors& tensors) {
  std::size_t model = 0;
  for (const auto* list : {&tensors.parameters, &tensors.buffers}) {
    for (const ProgramTensor& tensor : *list) {
      model += tensor.bytes;
    }
  }
  constexpr std::size_t kMost = kCheckpointFileBytesMax - nn::kSafetensorsHeaderBytesMax;
  if (model > kMost || program.optimizer_bytes_max > kMost - model) {
    return Error{Errc::kInvalidInput,
                 fmt::format("the model has {} bytes, and {} are reserved for the state of the "
                             "optimizer: together at most {} are possible",
                             model, program.optimizer_bytes_max, kMost)};
  }
  return {};
}

Result<void> check(const ProgramJob& program, const ProgramTensors& tensors) {
  const std::pair<bool, const char*> lacks[] = {
      {program.steps == 0, "steps must be at least 1"},
      {program.train_samples == 0, "the data set has no samples"},
      {program.global_batch == 0 || program.microbatch == 0,
       "the batch and the microbatch must be at least 1"},
      {program.train_samples > datasets::SampleStream::kSamplesMax,
       "the data set has more than 2^62 samples"},
      {program.test_chunk == 0, "the chunks of the test set must have at least one sample"},
      {program.test_chunk > 0 && program.test_samples / program.test_chunk >= kTestChunksMax,
       "the test set has more than 2^32 chunks: let each have more samples"},
      {tensors.parameters.empty(), "the model has no parameters"},
      {tensors.parameters.size() + tensors.buffers.size() > kTensorsMax,
       "the model has more than 60000 parameters and buffers"}};
  for (const auto& [is_so, why] : lacks) {
    if (is_so) {
      return Error{Errc::kInvalidInput, why};
    }
  }
  return check_size(program, tensors);
}

}  // namespace

Result<std::unique_ptr<ProgramWorker>> ProgramWorker::open(
    const std::map<std::string, std::string>& environment) {
  open_closed_standard_descriptors();  // otherwise the log might be written to a connection
  TRY_ASSIGN(JobConfig config, settings_of(environment));
  if (config.launched) {
    cloud_hooks::die_with_launcher();
  }
  resolve_defaults(config);
  // The program may change its working folder later.
  config.run_dir = absolute_path(config.run_dir);
  config.token_file = absolute_path(config.token_file);
  config.bind_host = worker_host(config);
  TRY(check_backend(config));
  TRY(check_reachable_host(config.bind_host));
  const bool is_child = environment.contains(cloud_hooks::kLauncherPidVariable);
  return std::unique_ptr<ProgramWorker>(new ProgramWorker(std::move(config), is_child));
}

ProgramWorker::~ProgramWorker() {
  if (thread_.joinable()) {
    ENSURE(is_over_, "a worker ends with its part in the job");
    thread_.join();
  }
}

Result<void> ProgramWorker::prepare(const ProgramJob& program, ProgramTensors tensors) {
  TRY(check(program, tensors));
  TRY_ASSIGN(const cloud_hooks::NoticeSetting notice,
             cloud_hooks::parse_notice_setting(config_.notice));
  TRY_ASSIGN(token_, read_job_token(config_));
  tensors_ = std::move(tensors);
  TRY_ASSIGN(job_, begin_program(config_));
  job_->facts = facts_of(program, tensors_);
  TRY(derive_program(*job_));
  TRY(elastic::check_fingerprint(job_->fingerprint));
  if (job_->config.microbatch * std::uint64_t{job_->microbatches} != job_->config.global_batch) {
    return Error{Errc::kInvalidInput, "the batch is not a multiple of the microbatch"};
  }
  layout_ = std::make_unique<ReductionLayout>(tensors_.summed(), job_->bucket_size.elements);
  TRY_ASSIGN(transport_, make_transport(config_, {}));
  state_ = std::make_unique<ProgramState>(*job_, *layout_, tensors_, program.optimizer_bytes_max,
                                          mailbox_);
  computer_ = std::make_unique<ProgramComputer>(*job_, *layout_, tensors_, *state_, mailbox_,
                                                program.test_chunk);
  const std::lock_guard lock(leave_mutex_);
  // Ctrl-C reaches the launcher, too, which stops the job with a checkpoint.
  signals_ = std::make_unique<LeaveSignals>(
      config_.launched, notice,
      is_child_ ? std::initializer_list<int>{SIGTERM, SIGUSR1, SIGINT}
                : std::initializer_list<int>{SIGTERM, SIGUSR1});
  if (early_reason_) {
    signals_->ask(*early_reason_);
  }
  return {};
}

Result<void> ProgramWorker::start(const ProgramJob& job, ProgramTensors tensors,
                                  OptimizerState optimizer, const std::string& sentinel_program) {
  log::open("worker", "", log::Level::kInfo);
  if (!config_.launched) {
    log::keep_lines(LogSender::kKeptBytes);
  }
  TRY(prepare(job, std::move(tensors)));
  TRY(state_->set_optimizer_state(std::move(optimizer.tensors), std::move(optimizer.blob),
                                  optimizer.learning_rate));
  TRY(tell_facts(config_, job_->facts));
  std::promise<Result<void>> promise;
  std::future<Result<void>> joined = promise.get_future();
  thread_ = std::thread([this, sentinel_program, promise = std::move(promise)]() mutable {
    pthread_setname_np(pthread_self(), "trainer");
    run(sentinel_program, std::move(promise));
  });
  Result<void> begun = joined.get();
  if (!begun.ok()) {
    thread_.join();
  }
  return begun;
}

Result<std::unique_ptr<elastic::MemberClient>> ProgramWorker::join(
    elastic::Sentinel* sentinel, std::optional<elastic::Former> former, Duration timeout) {
  Result<std::unique_ptr<elastic::MemberClient>> joined =
      join_job(config_,
               {transport_->address(), job_->fingerprint, token_, sentinel, std::move(former),
                &unconfirmed_.reports, signals_.get()},
               timeout);
  return joined.ok()
             ? std::move(joined)
             : Result<std::unique_ptr<elastic::MemberClient>>(with_advice(config_, joined.error()));
}

/// If no member has the state: loads the newest checkpoint of the job or the one that the job is
/// resumed from.
Result<void> ProgramWorker::settle_state(const elastic::MemberClient& client, bool joins_again) {
  // If a worker joins again under its id, as in jobs with standbys, the coordinator does not tell
  // it whether members are at work.
  const bool may_lack_state = client.joins_late() || !config_.launched || joins_again;
  if (!may_lack_state && config_.resume.empty()) {
    return {};
  }
  TransferQuestion question;
  question.step = state_->committed();
  TRY_ASSIGN(auto files, ask_for_better_state(coordinator_endpoints(config_), token_, question,
                                              [this, &client] {
                                                return signals_->asked() || client.is_dismissed();
                                              }));
  if (!files) {
    return {};
  }
  TRY(state_->load(*files));
  log::info(fmt::format("starting with the coordinator's checkpoint of step {}",
                        value(state_->committed())));
  return {};
}

void ProgramWorker::run(const std::string& sentinel_program, std::promise<Result<void>> joined) {
  Result<std::unique_ptr<elastic::Sentinel>> sentinel = elastic::spawn_sentinel(sentinel_program);
  if (!sentinel.ok()) {
    joined.set_value(sentinel.error());
    return;
  }
  bool joins_again = false;
  Step untrained{};  // of the checkpoint that this worker has read or was sent
  RejoinLimit limit;
  Duration timeout = first_answer_timeout(config_);
  std::optional<elastic::Former> former;
  while (true) {
    Result<std::unique_ptr<elastic::MemberClient>> client =
        join(sentinel.value().get(), std::move(former), timeout);
    if (!client.ok()) {
      if (!joins_again) {
        joined.set_value(client.error());
        return;
      }
      // A worker that was asked to leave while it joined again has left: the program may end with
      // 0.
      using enum elastic::DismissReason;
      return finish(
          {client.error().code == Errc::kAborted ? kDrained : kEvicted, client.error().detail});
    }
    std::optional<LogSender> log_sender;  // sends the last lines when it is destroyed
    if (!config_.launched) {
      log_sender.emplace(*client.value());
    }
    // Before the program continues, because its notes need a client.
    use(client.value().get(), sentinel.value().get());
    if (!joins_again) {
      joined.set_value({});
    }
    if (!joins_again || state_->committed() <= untrained) {  // all members may be lost meanwhile
      if (Result<void> settled = settle_state(*client.value(), joins_again); !settled.ok()) {
        use(nullptr, nullptr);
        return finish({elastic::DismissReason::kJobFailed, settled.error().detail});
      }
      untrained = state_->committed();
    }
    elastic::member_effect::Leave order = train_as_member({.job = *job_,
                                                           .layout = *layout_,
                                                           .feed = &feed_,
                                                           .computer = *computer_,
                                                           .state = *state_,
                                                           .transport = *transport_,
                                                           .board = sentinel.value()->board(),
                                                           .reach = reach_,
                                                           .token = token_,
                                                           .unconfirmed = unconfirmed_,
                                                           .signals = *signals_},
                                                          *client.value(), false);
    use(nullptr, nullptr);
    log_sender.reset();
    client.value().reset();  // sends the last messages
    // The program's initial values are overwritten, so only a new process could start with another
    // state. A worker that has committed nothing, such as a spare, may keep its state.
    const bool may_keep_state = job_->exact() || state_->committed() <= untrained;
    const bool keeps_state = may_keep_state && order.reason != elastic::DismissReason::kCorrupted;
    if (!keeps_state || is_abandoned() || !may_rejoin(order, limit, *signals_)) {
      return finish({order.reason, order.detail});
    }
    former = std::move(order.former);
    joins_again = true;
    timeout = Duration(static_cast<std::int64_t>(config_.coordinator_timeout * 1e9));
  }
}

void ProgramWorker::finish(ProgramEnd end) {
  signals_->has_left();
  end_ = std::move(end);
  mailbox_.end();
}

std::optional<ProgramTask> ProgramWorker::next(Duration patience) {
  const std::optional<ProgramTask> task = mailbox_.next(patience);
  if (!task) {
    return task;
  }
  state_->restore_buffers();
  computer_->begins();
  if (task->kind == ProgramTask::Kind::kMicrobatch) {
    feed_.taken(task->step, task->number);
  }
  is_over_ = task->kind == ProgramTask::Kind::kEnd;
  return task;
}

void ProgramWorker::use(elastic::MemberClient* client, elastic::Sentinel* sentinel) {
  const std::lock_guard lock(client_mutex_);
  client_ = client;
  sentinel_ = sentinel;
  if (sentinel_ != nullptr && is_abandoned_) {
    sentinel_->give_up();
  }
  if (client_ != nullptr) {
    for (const auto& [kind, text] : std::exchange(kept_notes_, {})) {
      send_note(kind, text);
    }
  }
}

void ProgramWorker::send_note(const std::string& kind, const std::string& text) {
  client_->send_report(
      encode_record(NoteRecord{NoteRecord::kOfProgram, text, value(client_->id()), kind}));
}

void ProgramWorker::leave(const std::string& reason) {
  const std::lock_guard lock(leave_mutex_);
  if (signals_ != nullptr) {
    signals_->ask(reason);
  } else {
    early_reason_ = reason;
  }
}

Result<void> ProgramWorker::stop() {
  constexpr Duration kStopTimeout = seconds(5);
  Error failure{Errc::kNotFound, "no coordinator is named"};
  for (const std::string& endpoint : coordinator_endpoints(config_)) {
    const Result<elastic::CommandReply> reply =
        elastic::send_command(endpoint, token_, {"stop", ""}, kStopTimeout);
    if (reply.ok() && reply.value().ok) {
      return {};
    }
    failure = reply.ok() ? Error{Errc::kRefused, reply.value().text} : reply.error();
  }
  return failure;
}

void ProgramWorker::note(const std::string& kind, const std::string& text) {
  const std::lock_guard lock(client_mutex_);
  if (client_ != nullptr) {
    send_note(kind, text);
  } else if (kept_notes_.size() < kKeptNotesMax) {
    kept_notes_.emplace_back(kind, text);
  }
}

void ProgramWorker::abandon(const std::string& why) {
  const std::optional<ProgramTask> task = mailbox_.current();
  mailbox_.abandon();
  const std::lock_guard lock(client_mutex_);
  if (std::exchange(is_abandoned_, true) || client_ == nullptr) {
    return;
  }
  ProgramFailureRecord failure{value(client_->id()), why, {}, {}};
  if (task && task->kind == ProgramTask::Kind::kMicrobatch) {
    failure.at = fmt::format("microbatch {} of step {}", task->number, task->step);
  } else if (task && task->kind == ProgramTask::Kind::kEvaluate) {
    failure.at = fmt::format("chunk {} of the evaluation after step {}", task->number, task->step);
  }
  if (!failure.at.empty()) {
    failure.samples = computer_->samples_of(*task).ids;
    failure.samples.resize(std::min(failure.samples.size(), kFailedSamplesMax));
  }
  client_->send_report(encode_record(failure));
  // The process is about to end, and reports that were not sent would be lost.
  (void)elastic::wait_for_reports(*client_, client_->view(), monotonic_now() + kReportTimeout);
  sentinel_->give_up();
}

bool ProgramWorker::is_abandoned() {
  const std::lock_guard lock(client_mutex_);
  return is_abandoned_;
}

}  // namespace mayfly::engine
