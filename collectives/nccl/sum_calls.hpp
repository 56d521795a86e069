#pragma once

// The calls of the CUDA runtime and of Mayfly's kernels that are needed for sums in the memory of a
// device, as an interface: the adapter in sum_calls_cuda.cpp makes them, a fake in the tests
// replaces them without a device. Calls that take a stream submit work and do not wait, except
// where stated. Each thread calls bind_thread() before any other function. Any thread, but memory
// that is being released must not be in use.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.hpp"
#include "collectives/group.hpp"
#include "collectives/plan/exact_sum.hpp"

namespace mayfly::collectives {

/// One microbatch's part of a bucket, to be added to the sums of a worker. All device memory; the
/// arrays are those of the whole vector.
struct SumTask {
  const float* gradient = nullptr;
  std::uint32_t* sums = nullptr;            ///< int32 if exact, else float
  const std::uint32_t* offsets = nullptr;   ///< of all blocks, and the end
  const std::int32_t* exponents = nullptr;  ///< exact only, by block
  std::int32_t* observed = nullptr;         ///< exact only, by block; raised to what is needed
  std::uint32_t* flags = nullptr;           ///< two counts of blocks: overflows, not finite; raised
  BlockRange blocks;
  bool first = false;  ///< the previous content of the sums does not matter
  bool exact = true;
  int bits = 0;  ///< exact only: magnitude_bits()
};

/// The inputs of the mean of a step's microbatches, all in device memory.
struct MeanTask {
  const std::uint32_t* sums = nullptr;      ///< as in SumTask, summed over all members
  const std::uint32_t* offsets = nullptr;   ///< of all blocks, and the end
  const std::int32_t* exponents = nullptr;  ///< exact only, by block
  std::uint32_t blocks = 0;                 ///< all of them
  bool exact = true;
  int bits = 0;  ///< exact only: magnitude_bits()
  float scale = 1;
  float* mean = nullptr;  ///< an element for each of the sums
};

class SumCalls {
 public:
  virtual ~SumCalls() = default;

  /// Makes this device the current one of the calling thread.
  virtual Result<void> bind_thread() = 0;

  /// Memory of the device. kUnsupported, with the bytes, if there is too little.
  virtual Result<void*> allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  /// Memory of the host that downloads go to.
  virtual Result<void*> allocate_pinned(std::size_t bytes) = 0;
  virtual void release_pinned(void* memory) noexcept = 0;
  virtual Result<DeviceStream> make_stream() = 0;
  virtual void destroy_stream(DeviceStream stream) noexcept = 0;
  virtual Result<DeviceEvent> make_event() = 0;
  virtual void destroy_event(DeviceEvent event) noexcept = 0;

  /// Copies from ordinary memory, which the caller may change after this call.
  virtual Result<void> upload(void* to, const void* from, std::size_t bytes,
                              DeviceStream stream) = 0;
  /// Copies to memory of allocate_pinned().
  virtual Result<void> download(void* to, const void* from, std::size_t bytes,
                                DeviceStream stream) = 0;
  /// Copies within the device.
  virtual Result<void> copy(void* to, const void* from, std::size_t bytes, DeviceStream stream) = 0;
  /// Fills with zeros.
  virtual Result<void> clear(void* memory, std::size_t bytes, DeviceStream stream) = 0;
  /// quantize_add() of collectives/plan/exact_sum for every block, or float additions.
  virtual Result<void> add(const SumTask& task, DeviceStream stream) = 0;
  /// dequantize() of collectives/plan/exact_sum for every block, or products of floats and the
  /// scale.
  virtual Result<void> mean(const MeanTask& task, DeviceStream stream) = 0;

  /// `event` happens when everything that was submitted to `stream` so far is complete.
  virtual Result<void> record(DeviceEvent event, DeviceStream stream) = 0;
  /// Work that is submitted to `stream` from now on waits for the last record of `event`.
  virtual Result<void> hold(DeviceStream stream, DeviceEvent event) = 0;
  /// Blocks until everything that was submitted to `stream` is complete.
  virtual Result<void> wait_for(DeviceStream stream) = 0;
};

/// The calls of the CUDA runtime on this GPU. kIo, in one line, if it cannot be opened.
[[nodiscard]] Result<std::unique_ptr<SumCalls>> make_cuda_sum_calls(int device);

}  // namespace mayfly::collectives
