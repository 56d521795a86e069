// What a worker of a job with parameter servers does when it, its servers or other workers leave.

#include "engine/parameter_server/ps_trainer.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/net/sockets.hpp"
#include "collectives/tcp/tcp_address.hpp"
#include "engine/network/prepare_job.hpp"
#include "engine/reduction/model_layout.hpp"
#include "engine/state/starting_state.hpp"
#include "tests/unit/engine/silent_client.hpp"

namespace mayfly::engine {
namespace {

constexpr MemberId kWorkerBefore{1};
constexpr MemberId kWorker{2};
constexpr MemberId kServer{3};
constexpr std::uint64_t kViewKey = 7;

/// One worker computes both slices of each step.
JobConfig job_of_two_slices() {
  JobConfig config;
  config.data = "procedural:64";
  config.global_batch = 16;
  config.microbatch = 4;
  config.steps = 4;
  config.sync = "bsp";
  config.slices = 2;
  return config;
}

elastic::View view_of(std::uint64_t id, std::vector<elastic::ViewMember> members) {
  elastic::View view;
  view.id = ViewId{id};
  view.key = kViewKey;
  view.members = std::move(members);
  return view;
}

elastic::ViewMember worker_with(MemberId id) {
  return {id, kPsWorkerAddress, {}, 0, 0, {}};
}

elastic::member_effect::Leave order_to_leave() {
  elastic::member_effect::Leave leave;
  leave.reason = elastic::DismissReason::kEvicted;
  return leave;
}

/// Whether it becomes true before a time that only a test that fails takes.
bool becomes_true(const std::function<bool()>& holds) {
  const Instant deadline = monotonic_now() + seconds(20);
  while (monotonic_now() < deadline) {
    if (holds()) {
      return true;
    }
    std::this_thread::yield();
  }
  return false;
}

/// A worker with one compute thread, without a coordinator.
class Worker {
 public:
  explicit Worker(const std::function<Duration(const ComputePool&)>& delay,
                  const JobConfig& config = job_of_two_slices())
      : job_(prepare_job(config).value()),
        layout_(layout_of(job_->model)),
        start_(starting_state(*job_, layout_).value()),
        loader_(datasets::make_loader(job_->data, loading(config))),
        pool_(ComputePool::start(*job_, layout_, *loader_, nullptr, 1).value()),
        checkpoints_(
            *job_, "none are written", [](const CheckpointRecord&) {}, nullptr),
        trainer_({.job = *job_,
                  .ps = make_ps_job(*job_, layout_, 0).value(),
                  .layout = layout_,
                  .loader = *loader_,
                  .pool = *pool_,
                  .client = client_,
                  .checkpoints = checkpoints_,
                  .board = board_,
                  .delay = [this, delay] { return delay(*pool_); },
                  .reach = reach_},
                 start_.state) {}

  /// Trains until the order to leave.
  void begin() {
    thread_ = std::thread([this] { (void)trainer_.run(); });
  }
  void leave(const elastic::member_effect::Leave& order = order_to_leave()) {
    trainer_.link().leave(order);
    thread_.join();
  }
  [[nodiscard]] PsLink& link() { return trainer_.link(); }
  [[nodiscard]] const test_support::SilentClient& client() const { return client_; }
  [[nodiscard]] const Job& job() const { return *job_; }
  [[nodiscard]] const ReductionLayout& layout() const { return layout_; }
  [[nodiscard]] const nn::ModelState& initial() const { return start_.state; }
  [[nodiscard]] const ComputePool& pool() const { return *pool_; }

 private:
  static datasets::LoaderOptions loading(const JobConfig& config) {
    datasets::LoaderOptions options;
    options.global_batch = config.global_batch;
    options.microbatch = config.microbatch;
    options.threads = 0;
    return options;
  }

  const std::unique_ptr<Job> job_;
  const ReductionLayout layout_;
  const StartingState start_;
  const std::unique_ptr<datasets::Loader> loader_;
  const std::unique_ptr<ComputePool> pool_;
  test_support::SilentClient client_{kWorker};
  CheckpointWriter checkpoints_;
  elastic::ProgressBoard board_;
  PeerReach reach_{kServerReach};
  PsTrainer trainer_;
  std::thread thread_;
};

Duration no_delay(const ComputePool& /*pool*/) {
  return {};
}

/// A server of a job of one server, without a coordinator.
class OneServer {
 public:
  explicit OneServer(const Worker& worker)
      : server_(
            PsServer::start(worker.job(), worker.layout(), worker.initial(), {0, false}).value()),
        link_(client_, Step{0}, Step{4}, hooks()) {
    server_->join(client_, link_);
  }
  /// The first view, which has this server.
  elastic::View run_view_with(const elastic::ViewMember& worker) {
    const elastic::View view = view_of(1, {worker, {kServer, server_->address(), {}, 0, 0, {}}});
    link_.run_view(view);
    return view;
  }
  void finish() { server_->finish(order_to_leave()); }

 private:
  PsLink::Hooks hooks() {
    PsLink::Hooks hooks;
    hooks.on_view = [this](const elastic::View& view) { server_->meet(view); };
    hooks.on_leave = [] {};
    return hooks;
  }

  test_support::SilentClient client_{kServer};
  const std::unique_ptr<PsServer> server_;
  PsLink link_;
};

// The rest of a gradient may still be sent after the order to leave, when the worker fetches the
// state for a checkpoint: the shard would apply it.
TEST(PsTrainer, ChangesNoGradientThatIsBeingSentWhenItHasToLeave) {
  std::atomic<bool> pushes = false;
  Worker worker([&pushes](const ComputePool& pool) -> Duration {
    if (pool.computed().microbatches == 0) {
      return {};
    }
    pushes = true;
    pushes.notify_all();
    return seconds(3600);
  });
  OneServer server(worker);
  worker.link().run_view(server.run_view_with(worker_with(kWorker)));
  worker.begin();
  pushes.wait(false);
  worker.leave();
  EXPECT_EQ(worker.pool().sums().totals().samples, 8) << "the sums of the first slice";
  server.finish();
}

// The job is stopped when the server has one of the two slices of a step. It computes the second
// one when it is ordered to leave.
TEST(PsTrainer, SaysThatItDoesNotSaveAStateInTheMiddleOfAStep) {
  JobConfig config = job_of_two_slices();
  config.sync = "asp";
  config.slices = 4;  // of one microbatch each
  std::atomic<bool> is_within_step = false;
  std::atomic<bool> is_stopped = false;
  Worker worker(
      [&](const ComputePool& pool) -> Duration {
        if (pool.computed().microbatches == 2 && !is_within_step.exchange(true)) {
          is_within_step.notify_all();
          is_stopped.wait(false);
        }
        return {};
      },
      config);
  OneServer server(worker);
  worker.link().run_view(server.run_view_with(worker_with(kWorker)));
  worker.begin();
  is_within_step.wait(false);
  elastic::member_effect::Leave stop;
  stop.reason = elastic::DismissReason::kJobStopped;
  stop.write_checkpoint = true;
  std::thread stopping([&] { worker.leave(stop); });
  ASSERT_TRUE(becomes_true([&] { return worker.link().leave_order().has_value(); }));
  is_stopped = true;
  is_stopped.notify_all();
  stopping.join();
  ASSERT_EQ(worker.client().reports, 1);
  const Result<Record> report = decode_record(worker.client().last_report());
  ASSERT_TRUE(report.ok()) << report.error().detail;
  const auto* note = std::get_if<NoteRecord>(&report.value());
  ASSERT_NE(note, nullptr);
  EXPECT_EQ(note->kind, "state_not_saved");
  EXPECT_EQ(note->detail,
            "the job's last state is not saved: the parameter servers have only a part of step 1");
  server.finish();
}

TEST(PsTrainer, ReportsLostServersIfTheWorkerThatHadToDoSoIsLost) {
  const Result<UniqueFd> listener = listen_tcp({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok()) << listener.error().detail;
  collectives::TcpAddress shard;
  shard.host = "127.0.0.1";
  shard.port = bound_endpoint(listener.value().get()).port;
  const ServerAddress server{0, {to_string(shard)}, {}, false};
  Worker worker(no_delay);
  worker.begin();
  worker.link().run_view(view_of(1, {worker_with(kWorkerBefore),
                                     worker_with(kWorker),
                                     {kServer, to_text(server), {}, 0, 0, {}}}));
  UniqueFd connection;
  EXPECT_TRUE(becomes_true([&] {
    connection = accept_one(listener.value().get());
    return connection.valid();
  })) << "it connects to the server";
  worker.link().run_view(view_of(2, {worker_with(kWorkerBefore), worker_with(kWorker)}));
  EXPECT_TRUE(becomes_true([&] { return worker.client().store_writes == 1; }));
  const int before = worker.client().reports;
  worker.link().run_view(view_of(3, {worker_with(kWorker)}));
  EXPECT_TRUE(becomes_true([&] { return worker.client().reports > before; }))
      << "nobody else can end the job";
  worker.leave();
}

}  // namespace
}  // namespace mayfly::engine
