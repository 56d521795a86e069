#include "engine/network/compute_pool_worker.hpp"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "base/digest.hpp"
#include "base/time.hpp"
#include "engine/config/derived_settings.hpp"
#include "engine/network/device.hpp"

namespace mayfly::engine {
namespace {

class NoSink final : public nn::GradientSink {
 public:
  void ready_from(std::size_t /*offset*/) override {}
};

}  // namespace

void ComputePool::Worker::run(std::uint32_t index) {
  pthread_setname_np(pthread_self(), ("compute-" + std::to_string(index)).c_str());
  Result<std::unique_ptr<nn::StepEngine>> engine =
      make_step_engine(pool_.job_, lane_ != nullptr ? &passes_ : nullptr);
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
  switch (task.work) {
    case Work::kTrain: return train(task.number);
    case Work::kAudit: return audit(task.number);
    case Work::kEvaluate: return evaluate(task.number);
    case Work::kPart: return run_part(task);
  }
}

void ComputePool::Worker::run_part(const Task& task) {
  const TraceSpan span(lane_, "update part", pool_.step_);
  (*task.function)(task.number, static_cast<std::uint32_t>(pool_.workers_.size()));
}

void ComputePool::Worker::trace_passes(std::uint32_t microbatch, Instant begin) const {
  if (lane_ == nullptr || !lane_->recording()) {
    return;
  }
  const Instant middle = passes_.forward_end();
  if (middle < begin) {  // a GPU does not report the end of the forward pass
    lane_->span("on the device", begin, monotonic_now(), pool_.step_, {"microbatch", microbatch});
    return;
  }
  lane_->span("forward", begin, middle, pool_.step_, {"microbatch", microbatch});
  lane_->span("backward", middle, monotonic_now(), pool_.step_, {"microbatch", microbatch});
}

std::unique_ptr<datasets::PreparedBatch> ComputePool::Worker::take(std::uint32_t microbatch) {
  const TraceSpan span(lane_, "data wait", pool_.step_, {"microbatch", microbatch});
  pool_.board_.compute(index_, elastic::Activity::kLoad, microbatch);
  if (is_ahead(microbatch)) {
    return std::move(ahead_);
  }
  return pool_.loader_.take(pool_.step_, microbatch);
}

/// To be called before a microbatch is computed: lets the device prefetch the next one, if the
/// loader has prepared it. A prefetched batch of a later step is kept while a step is computed
/// again. One that was skipped, as after a change of the view, is returned to the loader.
void ComputePool::Worker::look_ahead() {
  nn::DeviceEngine* const device = engine_->on_device();
  if (device == nullptr || device->holds_training_set()) {
    return;
  }
  if (ahead_ != nullptr && ahead_->step <= pool_.step_) {
    pool_.loader_.recycle(std::move(ahead_));
  }
  if (ahead_ == nullptr) {
    ahead_ = pool_.loader_.take_ahead();
  }
  if (ahead_ == nullptr || ahead_->failure.has_value()) {
    return;
  }
  ++ahead_id_;
  device->prefetch(as_engine_wants(*ahead_, ahead_id_));
}

nn::Batch ComputePool::Worker::as_engine_wants(const datasets::PreparedBatch& batch,
                                               std::uint64_t id) {
  draws_.clear();
  if (engine_->on_device() != nullptr && engine_->on_device()->holds_training_set()) {
    for (const datasets::StreamEntry& entry : batch.entries) {
      draws_.push_back({.sample = entry.sample, .epoch = entry.epoch});
    }
  }
  return {.images = batch.images, .labels = batch.labels, .draws = draws_, .id = id};
}

/// `whole`: the gradient is copied to this thread's vector even if the sums are on a device.
nn::TrainResult ComputePool::Worker::compute(const datasets::PreparedBatch& batch, std::uint64_t id,
                                             bool whole, nn::GradientSink& sink) {
  const ReductionLayout& layout = pool_.layout_;
  const bool stays = pool_.sums_.on_device() && !whole;
  const nn::TrainResult result = engine_->train(
      pool_.weights_, as_engine_wants(batch, id),
      static_cast<float>(pool_.job_.config.label_smoothing),
      stays ? std::span<float>() : vector_.span().subspan(layout.parameters_offset()),
      vector_.span().subspan(layout.statistics_offset(),
                             layout.parameters_offset() - layout.statistics_offset()),
      sink);
  vector_[0] = result.loss;
  return result;
}

/// Computes a microbatch that is already in the sums of some member; only the hash is kept.
void ComputePool::Worker::audit(std::uint32_t microbatch) {
  std::unique_ptr<datasets::PreparedBatch> batch = take(microbatch);
  if (batch->failure.has_value()) {
    pool_.fail(*batch->failure);
    return;
  }
  const TraceSpan span(lane_, "audit", pool_.step_, {"microbatch", microbatch});
  pool_.board_.compute(index_, elastic::Activity::kCompute, microbatch);
  NoSink nobody;
  (void)compute(*batch, 0, true, nobody);
  pool_.loader_.recycle(std::move(batch));
  const std::lock_guard lock(pool_.mutex_);
  pool_.recomputed_ = digest_of(std::as_bytes(vector_.span())).low;
}

/// The clock whose time injected slowness multiplies. With a CPU it does not count the time in
/// which this thread did not run, because its process was stopped or other processes had the
/// processors. With a GPU it counts all time, because the GPU computes while the thread waits.
Instant ComputePool::Worker::compute_clock() const {
  return uses_cuda(pool_.job_.config.device) ? monotonic_now() : thread_cpu_now();
}

void ComputePool::Worker::train(std::uint32_t microbatch) {
  const Instant turned_to = monotonic_now();
  const std::uint64_t id = is_ahead(microbatch) ? ahead_id_ : 0;
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
  const Instant clock_at_begin = compute_clock();
  const Instant cpu_at_begin = thread_cpu_now();
  next_bucket_ = 0;
  microbatch_ = microbatch;
  const bool audited = pool_.audited_ == microbatch;
  look_ahead();
  const nn::TrainResult result = compute(*batch, id, audited, *this);
  if (audited) {
    pool_.note_audited(vector_.span());
  }
  trace_passes(microbatch, begin);
  pool_.inject_slowdown(compute_clock() - clock_at_begin);
  add_ready_buckets(0, pool_.layout_.buckets().size());

  StepTotals totals;
  totals.correct = static_cast<std::int32_t>(result.correct);
  for (const std::uint32_t sample : batch->samples) {
    totals.add_sample(sample);
  }
  pool_.sums_.add_totals(totals);
  pool_.loader_.recycle(std::move(batch));

  const Instant end = monotonic_now();
  const Duration processor = thread_cpu_now() - cpu_at_begin;
  const std::lock_guard lock(pool_.mutex_);
  ++pool_.complete_;
  ++pool_.measured_;
  pool_.thread_ms_ += to_ms(end - turned_to);
  ++pool_.computed_.microbatches;
  pool_.computed_.time += end - begin;
  pool_.computed_.processor += processor;
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
  pool_.evaluation_.loss.add(result.loss_sum);
  pool_.evaluation_.samples += static_cast<std::int64_t>(count);
}

}  // namespace mayfly::engine
