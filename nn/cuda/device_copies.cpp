#include "nn/cuda/device_copies.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/gpu_facts.hpp"
#include "base/try_assign.hpp"
#include "nn/cuda/cuda_handles.hpp"
#include "nn/cuda/kernels/kernels.hpp"
#include "nn/step_engine.hpp"

namespace mayfly::nn::cuda {

Result<Staging> make_staging(const Model& model, std::uint32_t microbatch) {
  Staging staging;
  const std::pair<PinnedMemory*, std::size_t> parts[] = {
      {&staging.images, microbatch * image_floats(model) * sizeof(float)},
      {&staging.draws, microbatch * sizeof(SampleDraw)},
      {&staging.labels, microbatch * sizeof(std::uint16_t)},
      {&staging.loss_input, sizeof(LossInput)},
      {&staging.loss_output, sizeof(LossOutput)},
      {&staging.statistics, model.statistic_count * sizeof(float)}};
  for (const auto& [part, bytes] : parts) {
    TRY_ASSIGN(*part, make_pinned_memory(bytes));
    std::memset(part->get(), 0, bytes);
  }
  return staging;
}

Result<GradientCopy> GradientCopy::make(std::size_t elements, std::size_t parts) {
  GradientCopy copy;
  TRY_ASSIGN(copy.stream_, make_stream());
  TRY_ASSIGN(copy.pinned_, make_pinned_memory(elements * sizeof(float)));
  for (std::size_t i = 0; i < parts; ++i) {
    for (std::vector<OwnedEvent>* events : {&copy.computed_, &copy.copied_}) {
      TRY_ASSIGN(auto event, make_event());
      events->push_back(std::move(event));
    }
  }
  return copy;
}

void GradientCopy::start(std::size_t part, cudaStream_t compute, const float* gradient,
                         std::size_t first, std::size_t end) {
  require_gpu(check(cudaEventRecord(computed_[part].get(), compute), "marking a segment"));
  require_gpu(
      check(cudaStreamWaitEvent(stream_.get(), computed_[part].get(), 0), "awaiting a segment"));
  require_gpu(
      check(cudaMemcpyAsync(static_cast<float*>(pinned_.get()) + first, gradient + first,
                            (end - first) * sizeof(float), cudaMemcpyDeviceToHost, stream_.get()),
            "copying from the device"));
  require_gpu(check(cudaEventRecord(copied_[part].get(), stream_.get()), "marking a copy"));
}

void GradientCopy::bring(std::size_t part, std::size_t first, std::size_t end,
                         std::span<float> to) {
  require_gpu(check(cudaEventSynchronize(copied_[part].get()), "computing a gradient"));
  std::copy_n(static_cast<const float*>(pinned_.get()) + first, end - first, to.data() + first);
}

void GradientCopy::settle() {
  if (stream_.get() != nullptr) {
    (void)cudaStreamSynchronize(stream_.get());
  }
}

Result<void> copy_to_device(const TrainingSet& set, void* pixels, void* table, Stream stream) {
  const auto copy = [on = static_cast<cudaStream_t>(stream)](void* to, const void* from,
                                                             std::size_t bytes) -> Result<void> {
    constexpr const char* kWhat = "copying the training set to the device";
    TRY(check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, on), kWhat));
    // The memory is reused for the next piece, and CUDA may read it after the call even if it is
    // pageable.
    return check(cudaStreamSynchronize(on), kWhat);
  };
  Result<void> read =
      read_in_pieces(set, [&](std::size_t first, std::span<const std::uint8_t> piece) {
        return copy(static_cast<std::uint8_t*>(pixels) + first, piece.data(), piece.size_bytes());
      });
  return read.ok() ? copy(table, set.table.data(), sizeof set.table) : read;
}

Result<DeviceFeed> DeviceFeed::make(cudaStream_t engine, void* waiting, void* images,
                                    std::size_t bytes) {
  DeviceFeed feed;
  feed.engine_ = engine;
  feed.waiting_ = waiting;
  feed.images_ = images;
  for (PinnedMemory& part : feed.pinned_) {
    TRY_ASSIGN(part, make_pinned_memory(bytes));
  }
  TRY_ASSIGN(feed.copying_, make_stream());
  for (OwnedEvent* event : {&feed.uploaded_[0], &feed.uploaded_[1], &feed.handed_over_}) {
    TRY_ASSIGN(*event, make_event());
  }
  return feed;
}

// An event that was never recorded counts as complete.
void DeviceFeed::await_upload(std::size_t which) {
  require_gpu(check(cudaEventSynchronize(uploaded_[which].get()), "awaiting a copy of images"));
}

void DeviceFeed::upload(std::size_t which, std::size_t bytes) {
  require_gpu(check(cudaStreamWaitEvent(copying_.get(), handed_over_.get(), 0),
                    "awaiting the images before"));
  require_gpu(check(cudaMemcpyAsync(waiting_, pinned_[which].get(), bytes, cudaMemcpyHostToDevice,
                                    copying_.get()),
                    "copying images to the device"));
  require_gpu(check(cudaEventRecord(uploaded_[which].get(), copying_.get()), "marking images"));
  last_ = which;
}

void DeviceFeed::hand_over(std::size_t bytes) {
  require_gpu(
      check(cudaStreamWaitEvent(engine_, uploaded_[last_].get(), 0), "awaiting a copy of images"));
  require_gpu(check(cudaMemcpyAsync(images_, waiting_, bytes, cudaMemcpyDeviceToDevice, engine_),
                    "taking images"));
  require_gpu(check(cudaEventRecord(handed_over_.get(), engine_), "marking taken images"));
}

}  // namespace mayfly::nn::cuda
