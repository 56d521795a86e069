#include "nn/cuda/device_feed.hpp"

#include <utility>

#include "base/gpu_failure.hpp"

namespace mayfly::nn::cuda {

Result<DeviceFeed> DeviceFeed::make(cudaStream_t engine, void* waiting, void* images,
                                    std::size_t bytes) {
  DeviceFeed feed;
  feed.engine_ = engine;
  feed.waiting_ = waiting;
  feed.images_ = images;
  for (PinnedMemory& part : feed.pinned_) {
    Result<PinnedMemory> memory = make_pinned_memory(bytes);
    if (!memory.ok()) {
      return std::move(memory).error();
    }
    part = std::move(memory).value();
  }
  Result<OwnedStream> stream = make_stream();
  if (!stream.ok()) {
    return std::move(stream).error();
  }
  feed.copying_ = std::move(stream).value();
  for (OwnedEvent* event : {&feed.uploaded_[0], &feed.uploaded_[1], &feed.handed_over_}) {
    Result<OwnedEvent> made = make_event();
    if (!made.ok()) {
      return std::move(made).error();
    }
    *event = std::move(made).value();
  }
  return feed;
}

// An event that was never recorded is one that has happened.
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
