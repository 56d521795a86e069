#pragma once

// Private to nn/cuda/kernels: turns a body into a kernel. The CUDA compiler makes a kernel of it;
// for the host it is run in loops over its blocks and threads.
//
// A body for launch_each() is a function of an index:
//   void operator()(std::uint32_t i) const;
// Different indices touch different elements.
//
// A body for launch_blocks() is computed by blocks of kThreads threads in phases, with a barrier
// between two phases:
//   static constexpr int kThreads;
//   struct Shared;  what the threads of a block share; undefined at first
//   struct State;   what a thread keeps from phase to phase; zero at first
//   int phases() const;
//   void phase(int number, const Place& at, State& state, Shared& shared) const;
// Within one phase no thread reads data that another thread writes; the host can check that by
// running the threads backwards.

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "nn/cuda/kernels/kernels.hpp"
#include "nn/cuda/kernels/values.hpp"

#ifdef __CUDACC__
#include <cuda_runtime_api.h>
#else
#include "nn/cuda/kernels/host_order.hpp"
#endif

namespace mayfly::nn::cuda::MAYFLY_SIDE {

/// The position of a thread.
struct Place {
  std::uint32_t block;   ///< along the grid's x
  std::uint32_t column;  ///< along its y
  std::uint32_t thread;
};

struct Grid {
  std::uint32_t blocks = 1;   ///< x, below 2^31
  std::uint32_t columns = 1;  ///< y, below 2^16
};

inline constexpr int kEachThreads = 256;

/// Shared memory, state or both may be nothing.
struct Nothing {};

#ifdef __CUDACC__

template <typename Body>
__global__ void __launch_bounds__(kEachThreads)
    each_kernel(const __grid_constant__ Body body, const std::uint32_t count) {
  const std::uint32_t i = blockIdx.x * kEachThreads + threadIdx.x;
  if (i < count) {
    body(i);
  }
}

template <typename Body>
__global__ void __launch_bounds__(Body::kThreads) blocks_kernel(const __grid_constant__ Body body) {
  __shared__ typename Body::Shared shared;
  typename Body::State state{};
  const Place at{blockIdx.x, blockIdx.y, threadIdx.x};
  body.phase(0, at, state, shared);
  for (int number = 1; number < body.phases(); ++number) {
    __syncthreads();
    body.phase(number, at, state, shared);
  }
}

template <typename Body>
int launch_each(const Body& body, std::uint64_t count, Stream stream) {
  if (count > 0xffff0000U) {
    return kInvalidArguments;
  }
  if (count == 0) {
    return cudaSuccess;
  }
  const auto blocks = static_cast<unsigned>((count + kEachThreads - 1) / kEachThreads);
  each_kernel<<<blocks, kEachThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      body, static_cast<std::uint32_t>(count));
  return cudaGetLastError();
}

template <typename Body>
int launch_blocks(const Body& body, const Grid& grid, Stream stream) {
  blocks_kernel<<<dim3(grid.blocks, grid.columns), Body::kThreads, 0,
                  static_cast<cudaStream_t>(stream)>>>(body);
  return cudaGetLastError();
}

template <typename Kernel>
int load_kernel(Kernel* kernel) {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
}

template <typename... Bodies>
int load_each() {
  int failed = cudaSuccess;
  ((failed = failed != cudaSuccess ? failed : load_kernel(each_kernel<Bodies>)), ...);
  return failed;
}

template <typename... Bodies>
int load_blocks() {
  int failed = cudaSuccess;
  ((failed = failed != cudaSuccess ? failed : load_kernel(blocks_kernel<Bodies>)), ...);
  return failed;
}

#else

template <typename Body>
int launch_each(const Body& body, std::uint64_t count, Stream /*stream*/) {
  if (count > 0xffff0000U) {
    return kInvalidArguments;
  }
  const auto size = static_cast<std::uint32_t>(count);
  const bool backwards = host_thread_order() == HostOrder::kBackwards;
  for (std::uint32_t i = 0; i < size; ++i) {
    body(backwards ? size - 1 - i : i);
  }
  return 0;
}

template <typename Body>
void run_block(const Body& body, std::uint32_t block, std::uint32_t column,
               typename Body::Shared& shared, std::vector<typename Body::State>& states) {
  const bool backwards = host_thread_order() == HostOrder::kBackwards;
  std::memset(static_cast<void*>(&shared), 0xa5, sizeof shared);
  states.assign(Body::kThreads, typename Body::State{});
  for (int number = 0; number < body.phases(); ++number) {
    for (std::uint32_t i = 0; i < Body::kThreads; ++i) {
      const std::uint32_t thread = backwards ? Body::kThreads - 1 - i : i;
      body.phase(number, Place{block, column, thread}, states[thread], shared);
    }
  }
}

template <typename Body>
int launch_blocks(const Body& body, const Grid& grid, Stream /*stream*/) {
  const auto shared = std::make_unique<typename Body::Shared>();
  std::vector<typename Body::State> states;
  const bool backwards = host_thread_order() == HostOrder::kBackwards;
  for (std::uint32_t column = 0; column < grid.columns; ++column) {
    for (std::uint32_t i = 0; i < grid.blocks; ++i) {
      run_block(body, backwards ? grid.blocks - 1 - i : i, column, *shared, states);
    }
  }
  return 0;
}

template <typename... Bodies>
int load_each() {
  return 0;
}
template <typename... Bodies>
int load_blocks() {
  return 0;
}

#endif

/// function(value) with a value of the type that `dtype` has in memory.
template <typename Function>
int with_type_of(Dtype dtype, const Function& function) {
  switch (dtype) {
    case Dtype::kBf16: return function(Bf16{});
    case Dtype::kFp16: return function(Fp16{});
    case Dtype::kFp32: break;
  }
  return function(0.0F);
}

/// The first that is not 0.
template <typename... Codes>
int first_failure(Codes... codes) {
  int failed = 0;
  ((failed = failed != 0 ? failed : codes), ...);
  return failed;
}

/// Sums two numbers over the rows of threads of a block, by halves: the tree is fixed by the number
/// of rows, a power of two. `width` neighbouring threads are one row, each with sums of its own.
template <int kThreads, int kEach>
struct PairSums {
  double first[kEach][kThreads];
  double second[kEach][kThreads];

  MAYFLY_HOST_DEVICE void fold(std::uint32_t thread, std::uint32_t half_of_threads) {
    if (thread < half_of_threads) {
      for (int k = 0; k < kEach; ++k) {
        first[k][thread] += first[k][thread + half_of_threads];
        second[k][thread] += second[k][thread + half_of_threads];
      }
    }
  }
};

}  // namespace mayfly::nn::cuda::MAYFLY_SIDE
