#pragma once

// Runs a call on the host's kernels with their threads in order and in reverse order: a kernel
// whose result depends on this order would have a race on the GPU.

#include "nn/cuda/kernels/host_order.hpp"
#include "tests/unit/nn/cuda/kernels/machine.hpp"

namespace mayfly::nn::cuda::test {

template <typename Call>
auto on_host(const Call& call) {
  HostMachine machine;
  host_thread_order() = HostOrder::kBackwards;
  const auto backwards = call(machine);
  host_thread_order() = HostOrder::kForwards;
  auto forwards = call(machine);
  EXPECT_TRUE(same_results(forwards, backwards)) << "the result depends on the order of threads";
  return forwards;
}

}  // namespace mayfly::nn::cuda::test
