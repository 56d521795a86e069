#pragma once

// Private to nn/cuda: handles of the CUDA runtime, owned. All belong to one device, which must be
// that of the calling thread.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <type_traits>
#include <utility>

#include "base/result.hpp"

namespace mayfly::nn::cuda {

/// Ok for success, else kUnsupported with the action and CUDA's own text.
[[nodiscard]] Result<void> check(cudaError_t status, const char* what_we_did);

/// A handle with the function that releases it.
template <typename Handle, auto kRelease>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  ~Owned() {
    if (handle_ != nullptr) {
      (void)kRelease(handle_);
    }
  }
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  [[nodiscard]] Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

using OwnedStream = Owned<cudaStream_t, &cudaStreamDestroy>;
using OwnedEvent = Owned<cudaEvent_t, &cudaEventDestroy>;
using OwnedGraph = Owned<cudaGraph_t, &cudaGraphDestroy>;
using GraphProgram = Owned<cudaGraphExec_t, &cudaGraphExecDestroy>;
using DeviceMemory = Owned<void*, &cudaFree>;
using PinnedMemory = Owned<void*, &cudaFreeHost>;

/// A stream that does not wait for the null stream.
[[nodiscard]] Result<OwnedStream> make_stream();
/// An event without a time, which costs less.
[[nodiscard]] Result<OwnedEvent> make_event();
/// Zeroed.
[[nodiscard]] Result<DeviceMemory> make_device_memory(std::size_t bytes);
/// Pinned host memory, from which and to which the device copies without a staging buffer.
[[nodiscard]] Result<PinnedMemory> make_pinned_memory(std::size_t bytes);

/// Records the operations that `work` queues on `stream`, instead of running them, as one graph.
template <typename Work>
[[nodiscard]] Result<GraphProgram> capture(cudaStream_t stream, const Work& work) {
  TRY(check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording a graph"));
  Result<void> outcome = work();
  cudaGraph_t recorded = nullptr;
  Result<void> ended = check(cudaStreamEndCapture(stream, &recorded), "ending a graph");
  const OwnedGraph graph(recorded);
  if (!outcome.ok() || !ended.ok()) {
    return outcome.ok() ? std::move(ended).error() : std::move(outcome).error();
  }
  cudaGraphExec_t program = nullptr;
  TRY(check(cudaGraphInstantiate(&program, graph.get(), 0), "making a graph ready to run"));
  return GraphProgram(program);
}

}  // namespace mayfly::nn::cuda
