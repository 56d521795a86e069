#include "engine/processes/ps_process.hpp"

#include <fmt/format.h>

#include "base/log.hpp"
#include "base/try_assign.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/membership/exit_codes.hpp"
#include "engine/membership/job_settings.hpp"
#include "engine/membership/run_place.hpp"
#include "engine/membership/worker_join.hpp"
#include "engine/network/prepare_job.hpp"
#include "engine/parameter_server/ps_trainer.hpp"
#include "engine/reduction/model_layout.hpp"
#include "engine/state/starting_state.hpp"
#include "engine/transfers/better_state.hpp"
#include "engine/transfers/checkpoint_uploader.hpp"
#include "engine/transfers/checkpoint_writer.hpp"

namespace mayfly::engine {
namespace {

/// Replaces the state with which a server begins by the one from which the job is resumed, if it
/// is: a server does not receive a state later.
Result<void> settle_server_state(const Job& job, const ReductionLayout& layout, const Bytes& token,
                                 const LeaveSignals& signals, StartingState& start) {
  if (job.config.launched && job.config.resume.empty()) {
    return {};  // a launched worker has all settings of the job, so the job is not resumed
  }
  TransferQuestion question = question_about(start);
  question.needs_state = true;
  TRY_ASSIGN(const std::optional<nn::CheckpointFiles> given,
             ask_for_better_state(coordinator_endpoints(job.config), token, question,
                                  [&signals] { return signals.asked(); }));
  if (given) {
    TRY_ASSIGN(start, state_of_checkpoint(job, layout, *given, "the coordinator's checkpoint"));
    log::info(fmt::format("the parameters are those of the coordinator's checkpoint of step {}",
                          value(start.state.committed)));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<PsServer>> start_carried_server(const Job& job,
                                                       const ReductionLayout& layout,
                                                       const Bytes& token,
                                                       const LeaveSignals& signals,
                                                       StartingState& start) {
  const std::optional<std::uint32_t> index = carried_server(job.config);
  if (!index) {
    return std::unique_ptr<PsServer>();
  }
  TRY(settle_server_state(job, layout, token, signals, start));
  if (!start.state.is_drawn) {  // the checkpoint was removed: the job has had servers for long
    return std::unique_ptr<PsServer>();
  }
  return PsServer::start(job, layout, start.state, {*index, true});
}

elastic::member_effect::Leave train_with_servers(const PsWorkerParts& parts,
                                                 elastic::MemberClient& client,
                                                 const nn::ModelState& initial,
                                                 LeaveSignals& signals) {
  const Job& job = parts.job;
  const Result<PsJob> ps = make_ps_job(job, parts.layout, value(initial.committed));
  if (!ps.ok()) {  // this fails on every worker, so the job must end
    client.send_report(encode_record(FatalRecord{ps.error().detail}));
    elastic::member_effect::Leave leave;
    leave.reason = elastic::DismissReason::kJobFailed;
    leave.detail = ps.error().detail;
    return leave;
  }
  CheckpointUploader uploader(coordinator_endpoints(job.config), parts.token, client.job());
  CheckpointWriter checkpoints(
      job, job.config.run_dir + "/checkpoints",
      [&client](const CheckpointRecord& record) { client.send_report(encode_record(record)); },
      &uploader);
  PsTrainer trainer({.job = job,
                     .ps = ps.value(),
                     .layout = parts.layout,
                     .loader = parts.loader,
                     .pool = parts.pool,
                     .client = client,
                     .checkpoints = checkpoints,
                     .board = parts.board,
                     .delay = parts.delay,
                     .reach = parts.reach,
                     .server = parts.server},
                    initial);
  if (parts.server != nullptr) {
    parts.server->join(client, trainer.link());
  }
  client.start(trainer.link());
  signals.set_client(&client);
  log::info(fmt::format("joined {} as member {}", job.config.coordinator, value(client.id())));
  if (trainer.wait_for_link()) {
    client.post(elastic::member_event::Loaded{initial.committed, 0});
  }
  elastic::member_effect::Leave leave = trainer.run();
  if (parts.server != nullptr) {
    parts.server->finish(leave);
  }
  log::info(fmt::format("leaving: {}", leave.detail.empty() ? "the job is over" : leave.detail));
  signals.set_client(nullptr);
  client.send_report(encode_record(
      WorkerRecord{to_ms(parts.loader.time_waited().total()), value(trainer.committed())}));
  return leave;
}

int run_ps_server(const JobConfig& config, std::unique_ptr<elastic::Sentinel> sentinel,
                  LeaveSignals& signals) {
  const Result<std::unique_ptr<Job>> job = prepare_job(config);
  if (!job.ok()) {
    return fail(job.error(), kExitUsage);
  }
  const ReductionLayout layout = layout_of(job.value()->model, job.value()->bucket_size.elements);
  Result<StartingState> start = starting_state(*job.value(), layout);
  if (!start.ok()) {
    return fail(start.error(), kExitUsage);
  }
  const Result<Bytes> token = read_job_token(config);
  if (!token.ok()) {
    return fail(token.error(), kExitUsage);
  }
  if (config.tells_facts) {
    if (const Result<void> sent = tell_facts(config, job.value()->facts); !sent.ok()) {
      return fail(sent.error(), kExitUsage);
    }
  }
  if (const Result<void> settled =
          settle_server_state(*job.value(), layout, token.value(), signals, start.value());
      !settled.ok()) {
    return fail(settled.error(), exit_code_of(settled.error()));
  }
  const Result<std::unique_ptr<PsServer>> server =
      PsServer::start(*job.value(), layout, start.value().state, {config.ps_index, false});
  if (!server.ok()) {
    return fail(server.error(), kExitFailed);
  }
  Result<std::unique_ptr<elastic::MemberClient>> joined = join_job(config,
                                                                   {server.value()->address(),
                                                                    job.value()->fingerprint,
                                                                    token.value(),
                                                                    sentinel.get(),
                                                                    {},
                                                                    nullptr,
                                                                    &signals},
                                                                   first_answer_timeout(config));
  if (!joined.ok()) {
    return fail(with_advice(config, joined.error()), exit_code_of(joined.error()));
  }
  std::optional<LogSender> log_sender;
  if (!config.launched) {
    log_sender.emplace(*joined.value());
  }
  signals.set_client(joined.value().get());
  const elastic::member_effect::Leave leave = server.value()->run(*joined.value());
  signals.set_client(nullptr);
  log::info(fmt::format("leaving: {}", leave.detail.empty() ? "the job is over" : leave.detail));
  log_sender.reset();
  joined.value().reset();  // sends the last messages
  return exit_code_of(leave);
}

}  // namespace mayfly::engine
