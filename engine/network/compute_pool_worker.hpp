#pragma once

// Private to compute_pool: one of its threads.

#include <future>
#include <string>
#include <thread>

#include "base/aligned_buffer.hpp"
#include "engine/network/compute_pool.hpp"
#include "nn/cpu/cpu_engine.hpp"

namespace mayfly::engine {

/// Remembers when the engine began the backward pass.
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

  /// The engine once it is built, if it computes on a device; else null.
  [[nodiscard]] nn::DeviceEngine* on_device() const { return engine_->on_device(); }

  void ready_from(std::size_t offset) override {
    add_ready_buckets(pool_.layout_.parameters_offset() + offset,
                      pool_.layout_.buckets().size() - 1);
  }

 private:
  void run(std::uint32_t index);
  void run(const Task& task);
  void run_part(const Task& task);
  std::unique_ptr<datasets::PreparedBatch> take(std::uint32_t microbatch);
  [[nodiscard]] bool is_ahead(std::uint32_t microbatch) const {
    return ahead_ != nullptr && ahead_->step == pool_.step_ && ahead_->microbatch == microbatch;
  }
  void look_ahead();
  nn::Batch as_engine_wants(const datasets::PreparedBatch& batch, std::uint64_t id);
  nn::TrainResult compute(const datasets::PreparedBatch& batch, std::uint64_t id, bool whole,
                          nn::GradientSink& sink);
  [[nodiscard]] Instant compute_clock() const;
  void train(std::uint32_t microbatch);
  void audit(std::uint32_t microbatch);
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
  std::unique_ptr<datasets::PreparedBatch> ahead_;  // prefetched to the device; null = none
  std::uint64_t ahead_id_ = 0;                      // of the batch that was prefetched last
  std::vector<nn::SampleDraw> draws_;  // of the present batch, if the engine looks up images
  std::vector<float> test_images_;
  std::vector<std::uint16_t> test_labels_;
  std::unique_ptr<nn::StepEngine> engine_;  // made and used on thread_
  std::promise<Result<void>> built_;
  std::thread thread_;
};

}  // namespace mayfly::engine
