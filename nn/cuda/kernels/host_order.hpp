#pragma once

// Private to nn/cuda/kernels and its tests: the order in which the host runs blocks and threads. No
// result may depend on it.

namespace mayfly::nn::cuda {

enum class HostOrder { kForwards, kBackwards };

/// The order for the calling thread.
inline HostOrder& host_thread_order() {
  thread_local HostOrder order = HostOrder::kForwards;
  return order;
}

}  // namespace mayfly::nn::cuda
