#include "engine/compute_pool.hpp"

#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <utility>

#include "base/check.hpp"
#include "nn/cpu/cpu_engine.hpp"

namespace mayfly::engine {

namespace {

/// When the engine went from forward to backward.
class PassObserver final : public nn::cpu::StepObserver {
 public:
  void passed(nn::cpu::StepPart part, const nn::ConvSpec* /*layer*/) override {
    if (part == nn::cpu::StepPart::kClassifier) {
      forward_end_ = monotonic_now();
    }
  }
  [[nodiscard]] Instant forward_end() const { return forward_end_; }

 private:
  Instant forward_end_;
};

}  // namespace

/// One compute thread with its engine and buffers.
class ComputePool::Worker final : public nn::GradientSink {
 public:
  Worker(ComputePool& pool, std::uint32_t index, Trace* trace)
      : pool_(pool),
        index_(index),
        lane_(lane_of(trace, "compute " + std::to_string(index))),
        vector_(pool.layout_.element_count()),
        thread_([this, index] { run(index); }) {}
  ~Worker() override { thread_.join(); }

  /// The outcome of building the engine.
  Result<void> built() { return built_.get_future().get(); }

  void ready_from(std::size_t offset) override {
    add_ready_buckets(pool_.layout_.parameters_offset() + offset,
                      pool_.layout_.buckets().size() - 1);
  }

 private:
  void run(std::uint32_t index);
  void run(const Task& task);
  std::unique_ptr<datasets::PreparedBatch> take(std::uint32_t microbatch);
  void train(std::uint32_t microbatch);
  void evaluate(std::uint32_t chunk);
  void add_ready_buckets(std::size_t ready_from, std::size_t bucket_end);
  void trace_passes(std::uint32_t microbatch, Instant begin) const;

  ComputePool& pool_;
  std::uint32_t index_;
  TraceLane* lane_;  // null without a trace
  PassObserver passes_;
  AlignedBuffer<float> vector_;   // one microbatch's [loss | statistics | gradients]
  std::uint32_t microbatch_ = 0;  // the present one
  std::size_t next_bucket_ = 0;
  std::vector<float> test_images_;
  std::vector<std::uint16_t> test_labels_;
  std::unique_ptr<nn::StepEngine> engine_;  // made and used on thread_
  std::promise<Result<void>> built_;
  std::thread thread_;
};

void ComputePool::Worker::run(std::uint32_t index) {
  pthread_setname_np(pthread_self(), ("compute-" + std::to_string(index)).c_str());
  Result<std::unique_ptr<nn::StepEngine>> engine = nn::cpu::make_cpu_engine(
      pool_.job_.model, pool_.job_.config.microbatch,
      {.dtype = pool_.job_.dtype, .observer = lane_ != nullptr ? &passes_ : nullptr});
  if (!engine.ok()) {
    built_.set_value(std::move(engine).error());
    return;
  }
  engine_ = std::move(engine).value();
  built_.set_value({});
  std::unique_lock lock(pool_.mutex_);
  while (true) {
    pool_.work_added_.wait(lock, [this] { return pool_.stopping_ || !pool_.queue_.empty(); });
    if (pool_.stopping_) {
      return;
    }
    const Task task = pool_.queue_.front();
    pool_.queue_.pop_front();
    ++pool_.running_;
    lock.unlock();
    run(task);
    pool_.board_.rest(index_);
    lock.lock();
    --pool_.running_;
    pool_.work_done_.notify_all();
  }
}

void ComputePool::Worker::run(const Task& task) {
  if (task.function != nullptr) {
    const TraceSpan span(lane_, "update part", pool_.step_);
    (*task.function)(task.number, static_cast<std::uint32_t>(pool_.workers_.size()));
  } else if (task.evaluate) {
    evaluate(task.number);
  } else {
    train(task.number);
  }
}

void ComputePool::Worker::trace_passes(std::uint32_t microbatch, Instant begin) const {
  if (lane_ == nullptr || !lane_->recording()) {
    return;
  }
  const Instant middle = passes_.forward_end();
  lane_->span("forward", begin, middle, pool_.step_, {"microbatch", microbatch});
  lane_->span("backward", middle, monotonic_now(), pool_.step_, {"microbatch", microbatch});
}

std::unique_ptr<datasets::PreparedBatch> ComputePool::Worker::take(std::uint32_t microbatch) {
  const TraceSpan span(lane_, "data wait", pool_.step_, {"microbatch", microbatch});
  pool_.board_.compute(index_, elastic::Activity::kLoad, microbatch);
  return pool_.loader_.take(pool_.step_, microbatch);
}

void ComputePool::Worker::train(std::uint32_t microbatch) {
  const Instant turned_to = monotonic_now();
  std::unique_ptr<datasets::PreparedBatch> batch = take(microbatch);
  if (batch->failure.has_value()) {
    pool_.fail(*batch->failure);
    return;
  }
  if (pool_.ledger_ != nullptr) {
    pool_.ledger_->computed(pool_.step_, microbatch, batch->samples);
  }
  pool_.board_.compute(index_, elastic::Activity::kCompute, microbatch);
  pool_.hang_if_asked();
  const Instant begin = monotonic_now();
  const ReductionLayout& layout = pool_.layout_;
  next_bucket_ = 0;
  microbatch_ = microbatch;
  const nn::TrainResult result = engine_->train(
      pool_.weights_, {batch->images, batch->labels},
      static_cast<float>(pool_.job_.config.label_smoothing),
      vector_.span().subspan(layout.parameters_offset()),
      vector_.span().subspan(layout.statistics_offset(),
                             layout.parameters_offset() - layout.statistics_offset()),
      *this);
  vector_[0] = result.loss;
  trace_passes(microbatch, begin);
  add_ready_buckets(0, layout.buckets().size());

  StepTotals totals;
  totals.correct = static_cast<std::int32_t>(result.correct);
  for (const std::uint32_t sample : batch->samples) {
    totals.add_sample(sample);
  }
  pool_.sums_.add_totals(totals);
  pool_.loader_.recycle(std::move(batch));

  const double elapsed = to_ms(monotonic_now() - turned_to);
  const std::lock_guard lock(pool_.mutex_);
  ++pool_.complete_;
  ++pool_.measured_;
  pool_.thread_ms_ += elapsed;
}

void ComputePool::Worker::add_ready_buckets(std::size_t ready_from, std::size_t bucket_end) {
  const auto& buckets = pool_.layout_.buckets();
  while (next_bucket_ < bucket_end && buckets[next_bucket_].first >= ready_from) {
    {
      const TraceSpan span(lane_, "add to sums", pool_.step_,
                           {"bucket", static_cast<std::int64_t>(next_bucket_)});
      pool_.sums_.add_bucket(next_bucket_, vector_.span(), microbatch_);
    }
    {
      const std::lock_guard lock(pool_.mutex_);
      ++pool_.bucket_counts_[next_bucket_];
    }
    pool_.work_done_.notify_all();
    pool_.board_.passed(index_, static_cast<std::uint32_t>(next_bucket_));
    ++next_bucket_;
  }
}

void ComputePool::Worker::evaluate(std::uint32_t chunk) {
  const TraceSpan span(lane_, "evaluate", pool_.step_, {"chunk", chunk});
  pool_.board_.compute(index_, elastic::Activity::kEvaluate, chunk);
  const std::size_t size = pool_.job_.config.microbatch;
  const std::size_t first = chunk * size;
  const std::size_t count = std::min(size, pool_.job_.data.test->size() - first);
  const auto pixels = static_cast<std::size_t>(pool_.job_.model.image_size);
  test_images_.resize(count * 3 * pixels * pixels);
  test_labels_.resize(count);
  const Result<void> read =
      datasets::prepare_test_batch(pool_.job_.data, first, test_images_, test_labels_);
  if (!read.ok()) {
    pool_.fail(read.error());
    return;
  }
  const nn::EvaluationResult result =
      engine_->evaluate(pool_.weights_, {test_images_, test_labels_});
  const std::lock_guard lock(pool_.mutex_);
  pool_.evaluation_.correct += result.correct;
  pool_.evaluation_.loss_fixed += std::llround(result.loss_sum * (1 << 20));
  pool_.evaluation_.samples += static_cast<std::int64_t>(count);
}

ComputePool::ComputePool(const Job& job, const ReductionLayout& layout, datasets::Loader& loader,
                         Ledger* ledger, elastic::ProgressBoard* board)
    : job_(job),
      layout_(layout),
      loader_(loader),
      ledger_(ledger),
      own_board_(board == nullptr ? std::make_unique<elastic::ProgressBoard>() : nullptr),
      board_(board == nullptr ? *own_board_ : *board),
      sums_(layout, job.wire, job.microbatches, job.config.seed),
      bucket_counts_(layout.buckets().size()) {}

Result<std::unique_ptr<ComputePool>> ComputePool::start(const Job& job,
                                                        const ReductionLayout& layout,
                                                        datasets::Loader& loader, Ledger* ledger,
                                                        std::uint32_t threads, Trace* trace,
                                                        elastic::ProgressBoard* board) {
  std::unique_ptr<ComputePool> pool(new ComputePool(job, layout, loader, ledger, board));
  for (std::uint32_t i = 0; i < threads; ++i) {
    pool->workers_.push_back(std::make_unique<Worker>(*pool, i, trace));
  }
  Result<void> outcome;
  for (const auto& worker : pool->workers_) {
    Result<void> built = worker->built();
    if (!built.ok()) {
      outcome = std::move(built);
    }
  }
  if (!outcome.ok()) {
    return std::move(outcome).error();
  }
  return pool;
}

ComputePool::~ComputePool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_added_.notify_all();
  workers_.clear();
}

void ComputePool::begin_step(std::uint64_t step, const nn::ModelState& state,
                             std::span<const std::int32_t> exponents) {
  std::unique_lock lock(mutex_);
  ENSURE(queue_.empty(), "a step begins when the one before is complete or discarded");
  work_done_.wait(lock, [this] { return running_ == 0; });
  step_ = step;
  weights_ = {state.parameters.span(), state.statistics.span(), value(state.committed)};
  sums_.clear(exponents, step);
  added_ = 0;
  complete_ = 0;
  bucket_counts_.assign(layout_.buckets().size(), 0);
}

void ComputePool::add_microbatches(std::span<const std::uint32_t> microbatches) {
  {
    const std::lock_guard lock(mutex_);
    for (const std::uint32_t microbatch : microbatches) {
      queue_.push_back({.number = microbatch});
    }
    added_ += static_cast<std::uint32_t>(microbatches.size());
  }
  work_added_.notify_all();
}

bool ComputePool::wait_until_done(const std::uint32_t& counter) {
  std::unique_lock lock(mutex_);
  work_done_.wait(lock, [&] { return interrupted_ || failure_.has_value() || counter == added_; });
  return !interrupted_ && !failure_.has_value();
}

void ComputePool::fail(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.has_value()) {
      failure_ = error;
    }
  }
  work_done_.notify_all();
}

std::optional<Error> ComputePool::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool ComputePool::wait_for_bucket(std::size_t bucket) {
  // The last bucket is launched together with the totals, which are counted when a microbatch ends.
  if (!wait_until_done(bucket + 1 == bucket_counts_.size() ? complete_ : bucket_counts_[bucket])) {
    return false;
  }
  sums_.settle(bucket);
  return true;
}

bool ComputePool::wait_for_step() {
  return wait_until_done(complete_);
}

void ComputePool::run_parts(const PartFunction& function) {
  std::unique_lock lock(mutex_);
  ENSURE(queue_.empty(), "the step is complete");
  for (std::uint32_t part = 0; part < workers_.size(); ++part) {
    queue_.push_back({.number = part, .function = &function});
  }
  work_added_.notify_all();
  work_done_.wait(lock, [this] { return queue_.empty() && running_ == 0; });
}

void ComputePool::discard() {
  loader_.cancel_requests();
  std::unique_lock lock(mutex_);
  queue_.clear();
  work_done_.wait(lock, [this] { return running_ == 0; });
}

ComputeSpeed ComputePool::take_speed() {
  const std::lock_guard lock(mutex_);
  const double total_ms = std::exchange(thread_ms_, 0);
  const std::uint32_t count = std::exchange(measured_, 0);
  if (count == 0) {
    return {};
  }
  const auto threads = static_cast<double>(std::max<std::size_t>(1, workers_.size()));
  return {total_ms / count / threads, count};
}

void ComputePool::hang_at(std::uint64_t step, Duration how_long) {
  const std::lock_guard lock(mutex_);
  hang_ = Hang{step, how_long};
}

void ComputePool::hang_if_asked() {
  std::unique_lock lock(mutex_);
  if (hang_.has_value() && step_ >= hang_->step) {
    const Duration how_long = hang_->how_long;
    hang_.reset();
    work_added_.wait_for(lock, how_long, [this] { return stopping_; });
  }
}

void ComputePool::interrupt() {
  {
    const std::lock_guard lock(mutex_);
    interrupted_ = true;
  }
  work_done_.notify_all();
}

void ComputePool::clear_interrupt() {
  const std::lock_guard lock(mutex_);
  interrupted_ = false;
}

EvaluationSums ComputePool::evaluate(const nn::ModelState& state,
                                     std::span<const std::uint32_t> chunks) {
  std::unique_lock lock(mutex_);
  ENSURE(queue_.empty(), "evaluation begins when the step before is complete or discarded");
  work_done_.wait(lock, [this] { return running_ == 0; });
  weights_ = {state.parameters.span(), state.statistics.span(), value(state.committed)};
  evaluation_ = {};
  for (const std::uint32_t chunk : chunks) {
    queue_.push_back({.evaluate = true, .number = chunk});
  }
  work_added_.notify_all();
  work_done_.wait(lock, [this] { return (queue_.empty() && running_ == 0) || interrupted_; });
  if (interrupted_) {
    queue_.clear();
    work_done_.wait(lock, [this] { return running_ == 0; });
  }
  return evaluation_;
}

}  // namespace mayfly::engine
