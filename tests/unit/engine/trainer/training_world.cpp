#include "tests/unit/engine/trainer/training_world.hpp"

#include <chrono>
#include <deque>
#include <functional>
#include <set>
#include <span>
#include <utility>

#include "datasets/loader.hpp"
#include "elastic/core/member.hpp"
#include "elastic/net/member_client.hpp"
#include "elastic/net/progress_board.hpp"
#include "engine/network/compute_pool.hpp"
#include "engine/network/prepare_job.hpp"
#include "engine/network/sgd_keeper.hpp"
#include "engine/reduction/model_layout.hpp"
#include "engine/state/starting_state.hpp"
#include "engine/training/trainer.hpp"
#include "engine/transfers/checkpoint_writer.hpp"

namespace mayfly::test_support {
namespace {

constexpr std::chrono::seconds kHangBound{60};
// No member is evicted for silence: the machine may be busy, and all deaths are reported.
constexpr Duration kNeverSilent = seconds(3600);

}  // namespace

/// A worker's control connection. It calls the member's and the coordinator's machine directly.
class TrainingWorld::Client final : public elastic::MemberClient {
 public:
  Client(TrainingWorld& world, elastic::Welcome welcome)
      : world_(world), member_(welcome), joins_late_(welcome.underway) {}

  [[nodiscard]] MemberId id() const override { return member_.id(); }
  [[nodiscard]] std::uint64_t job() const override { return 1; }
  [[nodiscard]] bool joins_late() const override { return joins_late_; }
  void start(elastic::MemberHandler& handler) override {
    const std::lock_guard lock(world_.mutex_);
    handler_ = &handler;
    for (const elastic::MemberEffect& effect : std::exchange(held_back_, {})) {
      carry_out(effect);
    }
  }
  /// To be called before the handler is destroyed.
  void stop() {
    const std::lock_guard lock(world_.mutex_);
    handler_ = nullptr;
    is_dead_ = true;
  }
  void post(elastic::MemberEvent event) override {
    const std::lock_guard lock(world_.mutex_);
    give(event);
  }
  void send_progress(const elastic::Progress& p) override {
    post(elastic::member_event::Progressed{p});
  }
  using MemberClient::send_report;
  void send_report(Bytes payload, Instant /*happened*/) override {
    const std::lock_guard lock(world_.mutex_);
    if (!is_dead_) {
      world_.give(
          elastic::coordinator_event::Received{id(), elastic::Report{std::move(payload), 0}});
    }
  }
  Result<void> store_set(ViewId /*view*/, const std::string& /*key*/, ByteSpan /*v*/) override {
    return {};
  }
  Result<Bytes> store_get(ViewId /*view*/, const std::string& /*key*/,
                          Instant /*deadline*/) override {
    return Bytes();  // reports are taken at once
  }

  // Under the world's mutex:
  void receive(const elastic::Message& message) { give(elastic::member_event::Received{message}); }
  /// Simulates the death of the process: its messages are ignored from now on, and its trainer
  /// returns.
  void die() {
    is_dead_ = true;
    elastic::member_effect::Leave leave;
    leave.reason = elastic::DismissReason::kEvicted;
    if (handler_ != nullptr) {
      handler_->abort_group(view_);
      handler_->leave(leave);
    }
  }

 private:
  void give(const elastic::MemberEvent& event) {
    if (is_dead_) {
      return;
    }
    if (const auto* stopped = std::get_if<elastic::member_event::TrainerStopped>(&event)) {
      world_.end_.without_part += stopped->report.contributed ? 0 : 1;
    }
    for (const elastic::MemberEffect& effect : member_.handle(event)) {
      carry_out(effect);
    }
  }
  void carry_out(const elastic::MemberEffect& effect) {
    if (const auto* send = std::get_if<elastic::member_effect::Send>(&effect)) {
      world_.give(elastic::coordinator_event::Received{id(), send->message});
    } else if (handler_ == nullptr) {
      held_back_.push_back(effect);
    } else if (const auto* run = std::get_if<elastic::member_effect::RunView>(&effect)) {
      view_ = run->view.id;
      handler_->run_view(run->view);
    } else if (const auto* abort = std::get_if<elastic::member_effect::AbortGroup>(&effect)) {
      handler_->abort_group(abort->view);
    } else if (const auto* ask = std::get_if<elastic::member_effect::AskForBoundary>(&effect)) {
      handler_->ask_for_boundary(*ask);
    } else if (const auto* leave = std::get_if<elastic::member_effect::Leave>(&effect)) {
      handler_->leave(*leave);
    }
  }

  TrainingWorld& world_;
  elastic::Member member_;
  const bool joins_late_;
  elastic::MemberHandler* handler_ = nullptr;
  std::vector<elastic::MemberEffect> held_back_;  // until start() sets a handler
  ViewId view_{};
  bool is_dead_ = false;
};

namespace {

/// Calls `unrequested` for microbatches that are taken without a request, or after their request
/// was cancelled.
class WatchedLoader final : public datasets::Loader {
 public:
  WatchedLoader(std::unique_ptr<datasets::Loader> inner, std::function<void()> unrequested)
      : inner_(std::move(inner)), unrequested_(std::move(unrequested)) {}

  void request(std::uint64_t step, std::span<const std::uint32_t> microbatches) override {
    {
      const std::lock_guard lock(mutex_);
      for (const std::uint32_t microbatch : microbatches) {
        requested_.insert({step, microbatch});
      }
    }
    inner_->request(step, microbatches);
  }
  std::unique_ptr<datasets::PreparedBatch> take(std::uint64_t step,
                                                std::uint32_t microbatch) override {
    {
      const std::lock_guard lock(mutex_);
      if (requested_.erase({step, microbatch}) == 0) {
        unrequested_();
      }
    }
    return inner_->take(step, microbatch);
  }
  std::unique_ptr<datasets::PreparedBatch> take_ahead() override { return inner_->take_ahead(); }
  void recycle(std::unique_ptr<datasets::PreparedBatch> batch) override {
    inner_->recycle(std::move(batch));
  }
  void cancel_requests() override {
    const std::lock_guard lock(mutex_);
    requested_.clear();
    inner_->cancel_requests();
  }
  void leave_images_out() override { inner_->leave_images_out(); }
  datasets::LoaderWait time_waited() const override { return inner_->time_waited(); }
  datasets::LoaderWork work() const override { return inner_->work(); }
  datasets::FeedSettings settings() const override { return inner_->settings(); }

 private:
  const std::unique_ptr<datasets::Loader> inner_;
  const std::function<void()> unrequested_;
  std::mutex mutex_;
  std::set<std::pair<std::uint64_t, std::uint32_t>> requested_;
};

}  // namespace

WorkerKit make_network_kit(const engine::JobConfig& config,
                           const std::function<void()>& unrequested) {
  WorkerKit kit;
  kit.job = engine::prepare_job(config).value();
  kit.layout = std::make_unique<engine::ReductionLayout>(
      engine::layout_of(kit.job->model, kit.job->bucket_size.elements));
  datasets::LoaderOptions options;
  options.seed = config.seed;
  options.global_batch = config.global_batch;
  options.microbatch = config.microbatch;
  options.augment = config.augment;
  options.threads = 0;
  auto loader =
      std::make_unique<WatchedLoader>(datasets::make_loader(kit.job->data, options), unrequested);
  auto pool = engine::ComputePool::start(*kit.job, *kit.layout, *loader, nullptr, 1).value();
  kit.state = std::make_unique<engine::SgdKeeper>(
      *kit.job, *kit.layout, *pool, engine::starting_state(*kit.job, *kit.layout).value().state);
  kit.feed = std::move(loader);
  kit.computer = std::move(pool);
  return kit;
}

/// A worker, on one thread of this process.
class TrainingWorld::Worker {
 public:
  Worker(TrainingWorld& world, std::uint32_t number) : world_(world), number_(number) {
    engine::JobConfig config = world.config_;
    config.run_dir = world.folder_ / ("worker-" + std::to_string(number));
    kit_ = world.make_kit_(config, [&world] { world.note_unrequested(); });
    transport_ = world.hub_.make_transport("worker " + std::to_string(number));
  }
  ~Worker() {
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  void start() {
    thread_ = std::thread([this] { train(); });
  }
  void welcome(const elastic::Welcome& welcome) {
    client_ = std::make_unique<Client>(world_, welcome);
  }
  [[nodiscard]] Client& client() { return *client_; }
  [[nodiscard]] std::uint32_t number() const { return number_; }
  [[nodiscard]] std::string address() const { return transport_->address(); }

 private:
  void train() {
    engine::WorkerLink link(*transport_, *kit_.computer, *client_);
    engine::CheckpointWriter checkpoints(
        *kit_.job, kit_.job->config.run_dir + "/checkpoints",
        [this](const engine::CheckpointRecord& record) {
          client_->send_report(engine::encode_record(record));
        },
        nullptr);
    const Step committed = kit_.state->committed();
    const std::uint64_t state_bytes = kit_.state->packed_size();
    std::deque<engine::StepRecord> recent;
    const Bytes token;
    engine::Trainer trainer({*kit_.job, *kit_.layout, kit_.feed.get(), *kit_.computer, *kit_.state,
                             *transport_, *client_, link, checkpoints, board_, token, recent});
    client_->start(link);
    if (client_->joins_late()) {
      trainer.prepare_to_observe();
    }
    client_->post(elastic::member_event::Loaded{committed, state_bytes});
    trainer.run();
    client_->stop();
  }

  TrainingWorld& world_;
  const std::uint32_t number_;
  WorkerKit kit_;
  std::unique_ptr<collectives::Transport> transport_;
  std::unique_ptr<Client> client_;
  elastic::ProgressBoard board_;
  std::thread thread_;
};

TrainingWorld::TrainingWorld(const engine::JobConfig& config, const WorldOptions& options)
    : config_(config),
      make_kit_(options.make_kit),
      hub_([this](MemberId member) { return fate_of(member); },
           [this](MemberId member) { has_died(member); }) {
  elastic::CoordinatorOptions core;
  core.microbatches = config.global_batch / config.microbatch;
  core.initial_workers = options.workers;
  core.last_step = Step{config.steps};
  core.silence_max = kNeverSilent;
  core.starved_max = kNeverSilent;
  core.observe_from_bytes = options.observe_from_bytes;
  core.start_together = Duration{};
  core.seed = config.seed;
  coordinator_ = std::make_unique<elastic::Coordinator>(core);
  for (std::uint32_t i = 0; i < options.workers; ++i) {
    start_worker();
  }
}

TrainingWorld::~TrainingWorld() {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, worker] : members_) {
      worker->client().die();
    }
  }
  workers_.clear();
}

void TrainingWorld::let_die(std::uint32_t worker, std::uint64_t operation, Death death) {
  fates_[worker] = {operation, death};
}

void TrainingWorld::note_unrequested() {
  const std::lock_guard lock(mutex_);
  end_.unrequested += 1;
}

void TrainingWorld::start_worker() {
  const std::lock_guard lock(mutex_);
  const auto number = static_cast<std::uint32_t>(workers_.size());
  workers_.push_back(std::make_unique<Worker>(*this, number));
  elastic::Hello hello;
  hello.address = workers_.back()->address();
  hello.host = "here";
  give(elastic::coordinator_event::WorkerConnected{number, hello});
}

/// Effects may cause events, with which this function calls itself. Such an event is queued until
/// all effects of the present one are carried out.
void TrainingWorld::give(const elastic::CoordinatorEvent& event) {
  events_.push_back(event);
  if (events_.size() > 1) {
    return;
  }
  while (!events_.empty()) {
    for (const elastic::CoordinatorEffect& effect :
         coordinator_->handle(monotonic_now(), events_.front())) {
      carry_out(effect);
    }
    events_.pop_front();
  }
}

void TrainingWorld::carry_out(const elastic::CoordinatorEffect& effect) {
  using namespace elastic::coordinator_effect;
  if (const auto* accept = std::get_if<Accept>(&effect)) {
    members_[accept->member] = workers_[accept->connection].get();
  } else if (const auto* refuse = std::get_if<Refuse>(&effect)) {
    end_.contradictions.push_back("a worker was refused: " + refuse->reason);
  } else if (const auto* send = std::get_if<Send>(&effect)) {
    deliver(send->member, send->message);
  } else if (const auto* all = std::get_if<SendToAll>(&effect)) {
    for (const MemberId member : all->members) {
      deliver(member, all->message);
    }
  } else if (const auto* note = std::get_if<Note>(&effect)) {
    ++end_.notes[note->kind];
  } else if (std::holds_alternative<ViewPublished>(effect)) {
    ++end_.views;
  } else if (const auto* report = std::get_if<ReportReceived>(&effect)) {
    const Result<engine::Record> record = engine::decode_record(report->payload);
    if (const auto* step = std::get_if<engine::StepRecord>(&record.value())) {
      note_step(*step);
    }
  } else if (const auto* ended = std::get_if<JobEnded>(&effect)) {
    end_.outcome = ended->outcome;
    end_.detail = ended->detail;
    has_ended_ = true;
    changed_.notify_all();
  }
}

void TrainingWorld::deliver(MemberId member, const elastic::Message& message) {
  Worker& worker = *members_.at(member);
  if (const auto* welcome = std::get_if<elastic::Welcome>(&message)) {
    worker.welcome(*welcome);
  } else {
    worker.client().receive(message);
  }
}

void TrainingWorld::note_step(const engine::StepRecord& record) {
  const auto note = [&](std::map<std::uint64_t, std::string>& of_steps, const std::string& text,
                        const char* what) {
    const auto [place, is_new] = of_steps.emplace(record.step, text);
    if (!is_new && place->second != text) {
      end_.contradictions.push_back(std::string(what) + " of step " + std::to_string(record.step));
    }
  };
  note(end_.digests, record.digest, "digest");
  note(end_.sample_hashes, record.sample_hash, "samples");
  committed_ = std::max(committed_, record.step);
}

std::optional<Death> TrainingWorld::fate_of(MemberId member) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t operation = end_.operations[member]++;
  const auto fate = fates_.find(members_.at(member)->number());
  return fate != fates_.end() && fate->second.operation == operation
             ? std::optional(fate->second.death)
             : std::nullopt;
}

/// Simulates the death of a process: its connections break, and its sentinel reports its death to
/// the coordinator.
void TrainingWorld::has_died(MemberId member) {
  hub_.bury(member);
  const std::lock_guard lock(mutex_);
  members_.at(member)->client().die();
  give(elastic::coordinator_event::SentinelReport{member, "killed", true});
  give(elastic::coordinator_event::ConnectionLost{member, "connection closed"});
}

void TrainingWorld::start_joiners() {
  const std::lock_guard lock(mutex_);
  while (!joins_.empty() && committed_ >= *joins_.begin() && !has_ended_) {
    joins_.erase(joins_.begin());
    start_worker();
    workers_.back()->start();
  }
}

WorldEnd TrainingWorld::run() {
  for (const std::unique_ptr<Worker>& worker : workers_) {
    worker->start();
  }
  std::unique_lock lock(mutex_);
  const auto deadline = std::chrono::steady_clock::now() + kHangBound;
  while (!has_ended_ && std::chrono::steady_clock::now() < deadline) {
    changed_.wait_for(lock, std::chrono::milliseconds(5));
    give(elastic::coordinator_event::Tick{});
    start_joiners();
  }
  if (!has_ended_) {
    end_.detail = "the job did not end";
  }
  return end_;
}

}  // namespace mayfly::test_support
