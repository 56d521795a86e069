#include "engine/network/compute_pool.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/digest.hpp"
#include "engine/network/compute_pool_worker.hpp"

namespace mayfly::engine {

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
  if (pool->holds_training_set()) {
    loader.leave_images_out();
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

void ComputePool::begin_step(std::uint64_t step, std::span<const std::int32_t> exponents,
                             std::optional<std::uint32_t> audited) {
  std::unique_lock lock(mutex_);
  ENSURE(queue_.empty(), "a step begins when the one before is complete or discarded");
  work_done_.wait(lock, [this] { return running_ == 0; });
  step_ = step;
  if (injector_ != nullptr) {
    injector_->begin_step(step);
  }
  weights_ = present_weights();
  sums_.clear(exponents, step);
  audited_ = audited;
  audited_hash_.reset();
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

/// Engines identify a state by its step and the number of times that the state was replaced.
std::uint64_t ComputePool::version_of(Step committed) const {
  constexpr int kStepBits = 48;
  return value(committed) | (replacements_ << kStepBits);
}

nn::Weights ComputePool::weights_of(const nn::ModelState& state) const {
  return {.parameters = state.parameters.span(),
          .statistics = state.statistics.span(),
          .version = version_of(state.committed),
          .loss_scale = state.loss_scale.has_value() ? state.loss_scale->factor() : 1.0F};
}

nn::Weights ComputePool::present_weights() const {
  ENSURE(state_ != nullptr, "the state to compute with is set");
  return weights_of(*state_);
}

void ComputePool::keep_sums_on(collectives::DeviceSums& device) {
  nn::DeviceEngine* const engine = on_device();
  optimizer_ = engine != nullptr ? engine->optimizer() : nullptr;
  ENSURE(optimizer_ != nullptr,
         "a worker that sums on a device has one engine, which keeps the state");
  device_sums_ = &device;
  sums_.keep_on(device);
}

void ComputePool::update_on_device(const nn::SgdOptions& options, float scale, float rate,
                                   const nn::ModelState& state) {
  const nn::DeviceUpdate update{.weights = weights_of(state),
                                .momentum = state.momentum.span(),
                                .options = options,
                                .learning_rate = rate,
                                .version = version_of(next(state.committed))};
  run_parts([&](std::uint32_t /*part*/, std::uint32_t /*parts*/) {
    device_sums_->take_mean(scale, optimizer_->mean_gradient());
    optimizer_->update(update);
  });
}

void ComputePool::keep_on_device(const nn::ModelState& state) {
  run_parts([&](std::uint32_t /*part*/, std::uint32_t /*parts*/) {
    optimizer_->keep(version_of(state.committed), version_of(next(state.committed)));
  });
}

nn::DeviceEngine* ComputePool::on_device() const {
  return workers_.size() == 1 ? workers_[0]->on_device() : nullptr;
}

bool ComputePool::holds_training_set() const {
  return std::ranges::all_of(workers_, [](const auto& worker) {
    return worker->on_device() != nullptr && worker->on_device()->holds_training_set();
  });
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
    queue_.push_back({.work = Work::kPart, .number = part, .function = &function});
  }
  work_added_.notify_all();
  work_done_.wait(lock, [this] { return queue_.empty() && running_ == 0; });
}

void ComputePool::drop_queued() {
  const std::lock_guard lock(mutex_);
  queue_.clear();
}

void ComputePool::discard() {
  std::unique_lock lock(mutex_);
  queue_.clear();
  work_done_.wait(lock, [this] { return running_ == 0; });
}

ComputeWork ComputePool::computed() const {
  const std::lock_guard lock(mutex_);
  return computed_;
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

/// Lets the calling thread, which has computed a microbatch in the time `took`, wait for the time
/// that the injector adds.
void ComputePool::inject_slowdown(Duration took) {
  const Duration longer = injector_ != nullptr ? injector_->slowdown_of(took) : Duration(0);
  if (longer.count() > 0) {
    std::unique_lock lock(mutex_);
    work_added_.wait_for(lock, longer, [this] { return stopping_; });
  }
}

std::optional<std::uint64_t> ComputePool::audited_hash() const {
  const std::lock_guard lock(mutex_);
  return audited_hash_;
}

void ComputePool::note_audited(std::span<float> result) {
  if (spoil_from_.has_value() && step_ >= *spoil_from_) {
    spoil_from_.reset();
    result[layout_.statistics_offset()] += 1;
  }
  const std::uint64_t hash = digest_of(std::as_bytes(result)).low;
  const std::lock_guard lock(mutex_);
  audited_hash_ = hash;
}

std::optional<std::uint64_t> ComputePool::recompute(std::uint32_t microbatch) {
  std::unique_lock lock(mutex_);
  ENSURE(queue_.empty(), "the step is complete");
  recomputed_.reset();
  queue_.push_back({.work = Work::kAudit, .number = microbatch});
  work_added_.notify_all();
  work_done_.wait(lock, [this] { return queue_.empty() && running_ == 0; });
  return recomputed_;
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

std::size_t ComputePool::test_chunks() const {
  const std::size_t size = job_.config.microbatch;
  return (job_.data.test->size() + size - 1) / size;
}

EvaluationSums ComputePool::evaluate(std::span<const std::uint32_t> chunks) {
  std::unique_lock lock(mutex_);
  ENSURE(queue_.empty(), "evaluation begins when the step before is complete or discarded");
  work_done_.wait(lock, [this] { return running_ == 0; });
  weights_ = present_weights();
  evaluation_ = {};
  for (const std::uint32_t chunk : chunks) {
    queue_.push_back({.work = Work::kEvaluate, .number = chunk});
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
