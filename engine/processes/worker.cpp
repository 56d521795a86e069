// `mayfly worker`: loads everything, joins the job, and trains until the order to leave.

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/check.hpp"
#include "base/digest.hpp"
#include "base/log.hpp"
#include "base/parse.hpp"
#include "base/system_error.hpp"
#include "base/try_assign.hpp"
#include "base/usable_cores.hpp"
#include "cloud_hooks/local_provider.hpp"
#include "cloud_hooks/notice/notice_watcher.hpp"
#include "datasets/prepared_store.hpp"
#include "elastic/net/flight_recorder.hpp"
#include "elastic/net/reconnect.hpp"
#include "elastic/net/sentinel.hpp"
#include "engine/config/bind_host.hpp"
#include "engine/config/derived_settings.hpp"
#include "engine/faults/chaos_plan.hpp"
#include "engine/faults/injector.hpp"
#include "engine/membership/exit_codes.hpp"
#include "engine/membership/job_settings.hpp"
#include "engine/membership/membership.hpp"
#include "engine/membership/run_place.hpp"
#include "engine/membership/worker_join.hpp"
#include "engine/network/prepare_job.hpp"
#include "engine/network/sgd_keeper.hpp"
#include "engine/parameter_server/ps_trainer.hpp"
#include "engine/processes/coordinator_process.hpp"
#include "engine/processes/data_source.hpp"
#include "engine/processes/evaluator_process.hpp"
#include "engine/processes/ps_process.hpp"
#include "engine/processes/store_transport.hpp"
#include "engine/processes/worker.hpp"
#include "engine/reduction/model_layout.hpp"
#include "engine/server_roles/ps_servers.hpp"
#include "engine/state/starting_state.hpp"
#include "engine/training/backend.hpp"
#include "engine/training/peer_reach.hpp"
#include "engine/transfers/better_state.hpp"
#include "nn/checkpoint.hpp"

namespace mayfly::engine {
namespace {

std::uint32_t compute_threads(const JobConfig& config) {
  if (uses_cuda(config.device)) {
    return 1;
  }
  return config.threads > 0 ? config.threads : std::max(1U, usable_cores());
}

/// A worker with a GPU decodes images on all cores of its share. Workers that a command started on
/// this host share the cores that the command may use.
std::uint32_t decoding_threads(const JobConfig& config, std::uint32_t compute_threads) {
  const std::uint32_t usable = usable_cores();
  const std::uint32_t all = config.launched ? usable : cores_of_all();
  return uses_cuda(config.device) ? share_of_cores(all, usable, config.workers) : compute_threads;
}

/// Null without --prepared-store, and for images that are decoded once.
Result<std::shared_ptr<datasets::PreparedStore>> prepared_store_of(
    const Job& job, const datasets::LoaderOptions& loading) {
  if (job.config.prepared_store.empty() || !job.data.encoded) {
    return std::shared_ptr<datasets::PreparedStore>();
  }
  const auto side = static_cast<std::uint64_t>(job.data.train->image_size());
  Digester key;  // of everything on which a sample depends, besides its position
  for (const Digest& part : {job.data.files, job.data.digest}) {
    key.add_value(part.high);
    key.add_value(part.low);
  }
  key.add(std::as_bytes(std::span(job.facts.jpeg)));
  key.add_value(side);
  key.add_value(loading.seed);
  key.add_value(static_cast<std::uint8_t>(loading.augment));
  TRY_ASSIGN(
      std::shared_ptr<datasets::PreparedStore> store,
      datasets::PreparedStore::join({.key = key.finish(),
                                     .sample_bytes = 3 * side * side,
                                     .bytes_max = bytes_in(job.config.prepared_store).value(),
                                     .folder = {}}));
  log::info(fmt::format("jobs of this host with the same samples share up to {} prepared ones",
                        store->capacity()));
  return store;
}

datasets::LoaderOptions loader_options(const Job& job, std::uint32_t compute_threads) {
  constexpr std::size_t kPreparedBytesMax = std::size_t{512} << 20;
  const JobConfig& config = job.config;
  const auto side = static_cast<std::size_t>(job.model.image_size);
  const std::size_t batch_bytes = config.microbatch * 3 * side * side * sizeof(float);
  datasets::LoaderOptions options;
  options.seed = seed_of_samples(config);
  options.global_batch = config.global_batch;
  options.microbatch = config.microbatch;
  options.augment = config.augment;
  options.prefetch_max = static_cast<std::uint32_t>(
      std::clamp<std::size_t>(kPreparedBytesMax / batch_bytes, std::size_t{2} * compute_threads,
                              std::size_t{2} * std::max(job.microbatches, compute_threads)));
  options.threads = job.data.encoded ? decoding_threads(config, compute_threads) : 1;
  if (config.loader_threads > 0) {
    options.threads = config.loader_threads;
  }
  options.yield_cores = job.data.encoded;
  options.takers = compute_threads;
  options.reuse_images = config.reuse_images;
  return options;
}

/// The parts of a worker that exist before it is a member. Built in this order, destroyed in
/// reverse.
struct WorkerParts {
  std::unique_ptr<Injector> injector;
  std::unique_ptr<collectives::Transport> transport;
  std::unique_ptr<Job> job;
  std::unique_ptr<ReductionLayout> layout;
  std::unique_ptr<Ledger> ledger;
  std::unique_ptr<Trace> trace;  // null = none
  std::unique_ptr<datasets::Loader> loader;
  std::unique_ptr<ComputePool> pool;
  DeviceExchange device;  // empty = none; destroyed before the pool, for whose stream it waits
  std::unique_ptr<StateFaults> faults;
  std::unique_ptr<PeerReach> reach;
  elastic::ProgressBoard own_board;  // not read without a sentinel
  elastic::ProgressBoard* board = &own_board;
};

/// Allocates memory that is not used, so that benchmarks of recovery kill processes of a realistic
/// size: the kernel frees the memory of a dead process before it closes its sockets. Uses pages of
/// 4 KiB, which take the longest to free.
Result<void> occupy_memory(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return system_error("resident_mib", errno);
  }
  (void)::madvise(memory, bytes, MADV_NOHUGEPAGE);  // fails only on a kernel without huge pages
  for (std::size_t offset = 0; offset < bytes; offset += kPage) {
    static_cast<volatile char*>(memory)[offset] = 1;
  }
  return {};
}

/// The scripted faults that a worker carries out itself.
Result<void> plan_faults(const JobConfig& config, WorkerParts& parts) {
  TRY_ASSIGN(const std::vector<ChaosEvent> plan, parse_chaos_plan(config.chaos));
  for (const ChaosEvent& event : plan) {
    if (event.kind == ChaosKind::kHang) {
      parts.pool->hang_at(event.step + 1, milliseconds(event.for_ms));
    } else if (event.kind == ChaosKind::kFlipResult) {
      parts.pool->spoil_audited(event.step + 1);
    }
  }
  parts.faults = std::make_unique<StateFaults>(plan);
  return {};
}

/// Starts the injection of the slowness that --inject asks of this worker.
Result<void> plan_slowness(const JobConfig& config, WorkerParts& parts) {
  TRY_ASSIGN(const std::vector<InjectionRule> rules, parse_injections(config.inject));
  TRY_ASSIGN(parts.injector, Injector::start(injections_of_worker(rules, config.worker_number)));
  return {};
}

collectives::DelaySource delay_of(const JobConfig& config, const WorkerParts& parts) {
  return config.inject.empty() ? collectives::DelaySource()
                               : [injector = parts.injector.get()] { return injector->delay(); };
}

datasets::LoaderPaceOf pace_of(const JobConfig& config, const WorkerParts& parts) {
  if (config.inject.empty()) {
    return {};
  }
  return [injector = parts.injector.get()](std::uint64_t step) {
    const InjectedEffects effects = injector->while_loading(step);
    return datasets::LoaderPace{effects.fetch, effects.storage, effects.prep};
  };
}

/// With backend nccl: the transport needs the GPU that the engine has found.
Result<void> move_sums_to_device(const JobConfig& config, WorkerParts& parts) {
  if (!reduces_on_device(config)) {
    return {};
  }
  nn::DeviceEngine* const engine = parts.pool->on_device();
  ENSURE(engine != nullptr, "backend nccl is allowed only with device cuda");
  TRY_ASSIGN(parts.device, make_device_exchange(*parts.job, *parts.layout, engine->gradient()));
  parts.transport = std::move(parts.device.transport);
  parts.pool->keep_sums_on(*parts.device.parts.sums);
  log::info("weights are updated in the memory of the GPU");
  return {};
}

Result<void> build(const JobConfig& config, const LeaveSignals& signals, WorkerParts& parts) {
  TRY(plan_slowness(config, parts));
  if (config.resident_mib > 0) {
    TRY(occupy_memory(std::size_t{config.resident_mib} << 20));
  }
  if (!uses_parameter_servers(config) && !reduces_on_device(config)) {
    // First, because MPI starts only when every rank has called this.
    TRY_ASSIGN(parts.transport, make_transport(config, delay_of(config, parts)));
  }
  parts.reach =
      std::make_unique<PeerReach>(uses_parameter_servers(config) ? kServerReach : kWorkerReach);
  TRY_ASSIGN(parts.job,
             prepare_job(config, DataUse::kTraining, [&signals] { return signals.asked(); }));
  parts.layout = std::make_unique<ReductionLayout>(
      layout_of(parts.job->model, parts.job->bucket_size.elements));
  if (config.ledger) {
    parts.ledger = std::make_unique<Ledger>(config.run_dir + "/ledger");
  }
  if (!config.trace.empty()) {
    parts.trace = std::make_unique<Trace>(parse_trace_window(config.trace_steps).value());
  }
  const std::uint32_t threads = compute_threads(config);
  datasets::LoaderOptions loading = loader_options(*parts.job, threads);
  loading.pace = pace_of(config, parts);
  TRY_ASSIGN(loading.prepared, prepared_store_of(*parts.job, loading));
  parts.loader = datasets::make_loader(parts.job->data, loading);
  TRY_ASSIGN(parts.pool,
             ComputePool::start(*parts.job, *parts.layout, *parts.loader, parts.ledger.get(),
                                threads, parts.trace.get(), parts.board));
  if (uses_cuda(config.device)) {
    log::info(parts.pool->holds_training_set() ? "the training set is in the memory of the GPU"
                                               : "images come to the GPU from host memory");
  }
  parts.pool->slow_down(parts.injector.get());
  TRY(move_sums_to_device(config, parts));
  if (parts.transport != nullptr) {
    parts.transport = make_store_transport(std::move(parts.transport), parts.job->data.peers);
  }
  return plan_faults(config, parts);
}

/// The result of one membership.
struct EndedMembership {
  elastic::member_effect::Leave leave;
  nn::ModelState state;
  bool rejoins = false;  ///< it left only to join again without its parameter server
};

/// Trains from the moment when this worker is a member until it leaves. `server` is the parameter
/// server in this process, or null.
EndedMembership run_membership(const JobConfig& config, const WorkerParts& parts,
                               const Bytes& token, elastic::MemberClient& client,
                               nn::ModelState initial, UnconfirmedReports& unconfirmed,
                               PsServer* server, LeaveSignals& signals) {
  std::optional<LogSender> log_sender;  // destroyed last, when it sends the last lines
  if (!config.launched) {
    log_sender.emplace(client);
  }
  if (parts.transport == nullptr) {
    const PsWorkerParts ps{.job = *parts.job,
                           .layout = *parts.layout,
                           .loader = *parts.loader,
                           .pool = *parts.pool,
                           .board = *parts.board,
                           .delay = delay_of(config, parts),
                           .reach = *parts.reach,
                           .token = token,
                           .server = server};
    elastic::member_effect::Leave leave = train_with_servers(ps, client, initial, signals);
    const bool rejoins =
        server != nullptr && server->is_late() && leave.reason == elastic::DismissReason::kDrained;
    return {std::move(leave), std::move(initial), rejoins};
  }
  SgdKeeper state(*parts.job, *parts.layout, *parts.pool, std::move(initial));
  elastic::member_effect::Leave leave =
      train_as_member({.job = *parts.job,
                       .layout = *parts.layout,
                       .feed = parts.loader.get(),
                       .computer = *parts.pool,
                       .state = state,
                       .transport = *parts.transport,
                       .board = *parts.board,
                       .reach = *parts.reach,
                       .token = token,
                       .unconfirmed = unconfirmed,
                       .signals = signals,
                       .trace = parts.trace.get(),
                       .after_commit = [&] { state.spoil(*parts.faults); },
                       .device_sums = parts.device.parts.sums.get()},
                      client);
  return {std::move(leave), state.take()};
}

/// The state of a worker that has not trained yet. With parameter servers its weights are generated
/// at once, because the worker may carry a server. `may_join_late`: the worker may join a running
/// job, in which a checkpoint that does not exist any more was followed by newer ones; other
/// members or the coordinator have these.
Result<StartingState> fresh_state(const WorkerParts& parts, bool may_join_late) {
  Result<StartingState> start = parts.transport == nullptr
                                    ? starting_state(*parts.job, *parts.layout)
                                    : joining_state(*parts.job, *parts.layout);
  const bool is_gone = !start.ok() && start.error().code == Errc::kNotFound;
  return is_gone && may_join_late ? undrawn_state(*parts.job, *parts.layout) : std::move(start);
}

/// The state with which an evicted worker joins again. In exact reduction its own state has the
/// same bits as one that the job has had or will have, unless it was evicted for a wrong state.
/// With rounded sums the other members may compute other bits in a step that only this worker has
/// committed; then it starts like any new worker.
Result<StartingState> state_to_rejoin_with(const WorkerParts& parts, StartingState before,
                                           EndedMembership ended) {
  if (parts.job->exact() && ended.leave.reason != elastic::DismissReason::kCorrupted) {
    before.state = std::move(ended.state);
    return before;
  }
  return fresh_state(parts, true);
}

/// Decides with which state a worker begins that has computed nothing of the job yet: its own, or,
/// if no member has the state, the newest checkpoint of the job or the one that the job is resumed
/// from, if the coordinator has it. kRefused if the worker's own state is of another job.
Result<void> settle_state(const JobConfig& config, const WorkerParts& parts, const Bytes& token,
                          const elastic::MemberClient& client, bool joins_again,
                          const LeaveSignals& signals, StartingState& start) {
  const bool has_state = start.checkpoint.has_value();
  // The state of a worker that joins again may be one that it was sent. If the worker keeps its id,
  // as in jobs with standbys, the coordinator does not tell it whether members are at work.
  const bool may_lack_state = client.joins_late() || !config.launched || joins_again;
  if (!has_state && !may_lack_state && !config.resume.empty()) {
    return Error{Errc::kNotFound, fmt::format("checkpoint {} does not exist", config.resume)};
  }
  if (!has_state && !may_lack_state) {
    return {};
  }
  Result<std::optional<nn::CheckpointFiles>> better = ask_for_better_state(
      coordinator_endpoints(config), token, question_about(start),
      [&signals, &client] { return signals.asked() || client.is_dismissed(); });
  if (!better.ok()) {
    return Error{better.error().code,
                 fmt::format("the coordinator at {} refuses this worker: {}; start it without "
                             "--resume: it gets the job's state from the others, or the newest "
                             "checkpoint of the job from the coordinator",
                             config.coordinator, better.error().detail)};
  }
  if (!better.value()) {
    return {};
  }
  TRY_ASSIGN(StartingState given, state_of_checkpoint(*parts.job, *parts.layout, *better.value(),
                                                      "the coordinator's checkpoint"));
  log::info(fmt::format("starting with the coordinator's checkpoint of step {}",
                        value(given.state.committed)));
  start.state = std::move(given).state;
  start.checkpoint.reset();  // its own checkpoint is replaced, and cannot be refused any more
  start.is_foreign = false;
  return {};
}

/// The address for other members: of this worker's transport, or of the server that it carries.
std::string address_of(const WorkerParts& parts, const PsServer* server) {
  if (server != nullptr) {
    return server->address();
  }
  return parts.transport != nullptr ? parts.transport->address() : kPsWorkerAddress;
}

int code_without_data(const Error& why, LeaveSignals& signals) {
  signals.has_left();
  if (why.code == Errc::kAborted) {
    log::info(why.detail);
    return kExitDone;  // as after a planned leave
  }
  return fail(why, why.code == Errc::kPeerLost ? kExitFailed : kExitUsage);
}

/// Joins the job again and again, as a new member each time, until it does not want this worker any
/// more. Data, kernels and the transport are kept from one membership to the next.
int run_memberships(const JobConfig& config, const WorkerParts& parts, elastic::Sentinel* sentinel,
                    StartingState start, LeaveSignals& signals) {
  const Result<Bytes> token = read_job_token(config);
  if (!token.ok()) {
    return fail(token.error(), kExitUsage);
  }
  RejoinLimit limit;
  UnconfirmedReports unconfirmed;
  bool joins_again = false;
  Duration timeout = first_answer_timeout(config);
  std::optional<elastic::Former> former;
  Result<std::unique_ptr<PsServer>> server =
      start_carried_server(*parts.job, *parts.layout, token.value(), signals, start);
  if (!server.ok()) {
    return fail(server.error(), exit_code_of(server.error()));
  }
  Step untrained = start.state.committed;  // of the checkpoint that it has read or was sent
  while (true) {
    Result<std::unique_ptr<elastic::MemberClient>> joined =
        join_job(config,
                 {address_of(parts, server.value().get()), parts.job->fingerprint, token.value(),
                  sentinel, std::move(former), &unconfirmed.reports, &signals},
                 timeout);
    if (!joined.ok()) {
      return fail(with_advice(config, joined.error()), exit_code_of(joined.error()));
    }
    if (start.state.committed <= untrained) {  // each time: all members may be lost meanwhile
      const Result<void> settled =
          settle_state(config, parts, token.value(), *joined.value(), joins_again, signals, start);
      if (!settled.ok()) {
        return fail(settled.error(), kExitUsage);
      }
      untrained = start.state.committed;
    }
    EndedMembership ended =
        run_membership(config, parts, token.value(), *joined.value(), std::move(start.state),
                       unconfirmed, server.value().get(), signals);
    joined.value().reset();  // sends the last messages
    server.value().reset();  // the job cannot use its parameters any more
    if (ended.rejoins) {
      log::info("joining again without the parameter server");
    }
    if (ended.rejoins ? signals.asked() : !may_rejoin(ended.leave, limit, signals)) {
      if (ended.leave.reason == elastic::DismissReason::kDrained &&
          parts.job->data.peers != nullptr) {
        parts.job->data.peers->serve_after_leaving();
      }
      return exit_code_of(ended.leave);
    }
    former = std::move(ended.leave.former);
    if (ended.leave.reason == elastic::DismissReason::kCorrupted) {
      unconfirmed.reports.clear();
      unconfirmed.steps.clear();
    }
    Result<StartingState> kept = state_to_rejoin_with(parts, std::move(start), std::move(ended));
    if (!kept.ok()) {
      return fail(kept.error(), kExitFailed);
    }
    start = std::move(kept).value();
    joins_again = true;
    timeout = Duration(static_cast<std::int64_t>(config.coordinator_timeout * 1e9));
  }
}

}  // namespace

int run_worker(const JobConfig& requested, std::unique_ptr<elastic::Sentinel> sentinel) {
  JobConfig config = requested;
  resolve_defaults(config);
  config.bind_host = worker_host(config);
  if (config.launched) {
    cloud_hooks::die_with_launcher();
  }
  for (const Result<void>& usable :
       {config.evaluator ? Result<void>() : check_backend(config),  // an evaluator joins no group
        check_servers(config), check_reachable_host(config.bind_host)}) {
    if (!usable.ok()) {
      return refuse(usable.error(), kExitUsage);
    }
  }
  log::open("worker", "", log::Level::kInfo);
  if (!config.launched) {  // otherwise the launcher receives its output
    log::keep_lines(LogSender::kKeptBytes);
  }
  elastic::FlightRecorder::write_on_fatal_signals();
  const Result<cloud_hooks::NoticeSetting> notice =
      cloud_hooks::parse_notice_setting(config.notice);
  if (!notice.ok()) {
    return refuse(notice.error(), kExitUsage);
  }
  LeaveSignals signals(config.launched, notice.value());
  const Result<void> fetched = fetch_data(config, [&signals] { return signals.asked(); });
  if (!fetched.ok()) {
    return code_without_data(fetched.error(), signals);
  }
  if (config.evaluator || config.ps_server) {
    const int code = config.evaluator ? run_evaluator(config, signals)
                                      : run_ps_server(config, std::move(sentinel), signals);
    signals.has_left();
    return code;
  }
  WorkerParts parts;
  if (sentinel != nullptr) {
    parts.board = &sentinel->board();
  }
  if (Result<void> built = build(config, signals, parts); !built.ok()) {
    return code_without_data(built.error(), signals);
  }
  Result<StartingState> start = fresh_state(parts, config.launched);
  if (!start.ok()) {
    return fail(start.error(), kExitUsage);
  }
  if (config.tells_facts) {
    if (Result<void> sent = tell_facts(config, parts.job->facts); !sent.ok()) {
      return fail(sent.error(), kExitUsage);
    }
  }
  const int code =
      run_memberships(config, parts, sentinel.get(), std::move(start).value(), signals);
  signals.has_left();
  return code;
}

}  // namespace mayfly::engine
