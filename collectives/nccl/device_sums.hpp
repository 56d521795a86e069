#pragma once

// A worker's gradient sums in the memory of its GPU. Microbatch after microbatch is added there, as
// soon as the compute stream has its gradient; copies go through a group of GPUs, bucket by bucket;
// what comes back is fetched to the host.
//
// Two streams. On the compute stream, which is the engine's, gradients become sums. On the staging
// stream sums are copied for the wire, and results to the host; where the update is made on the
// device, their mean stays there, on the compute stream. Events, one for each bucket and
// direction, keep them in order, so a bucket's copy does not wait for the rest of a backward pass
// that is already on the compute stream.
//
// The sums outlive a view: when a group breaks, only the copies are lost. A device that fails ends
// the process (base/gpu_facts).

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "collectives/nccl/sum_calls.hpp"

namespace mayfly::collectives {

/// The layout of the sums: tensors cut into blocks.
struct DeviceSumsShape {
  std::vector<std::uint32_t> offsets;  ///< of the blocks, from 0, and the end, in elements
  bool exact = true;                   ///< integers, else floats
  int bits = 0;                        ///< exact only: magnitude_bits()
};

/// Where the engine leaves a microbatch's gradient, always the same.
struct GradientPlace {
  const float* gradient = nullptr;
  DeviceStream stream = nullptr;  ///< what it is given later sees what it was given before
};

/// Facts about the gradients that were added in this step.
struct SumFindings {
  std::uint32_t overflows = 0;             ///< blocks that did not fit their exponent
  std::uint32_t nonfinite = 0;             ///< blocks with an infinity or NaN
  std::span<const std::int32_t> observed;  ///< exact only: the largest exponent needed, by block
};

class DeviceSums {
 public:
  /// The bytes that sums of this shape allocate in the device's memory. Pure.
  [[nodiscard]] static std::size_t device_bytes(const DeviceSumsShape& shape);
  /// Allocates device_bytes() on the device, among them the vector twice, and the vector on the
  /// host. kUnsupported, in one line, if the device refuses. `calls` must outlive it; so must the
  /// stream and memory of `place`.
  static Result<std::unique_ptr<DeviceSums>> make(SumCalls& calls, DeviceSumsShape shape,
                                                  const GradientPlace& place);
  /// Waits for the device.
  ~DeviceSums();
  DeviceSums(const DeviceSums&) = delete;
  DeviceSums& operator=(const DeviceSums&) = delete;

  /// Begins a step of so many buckets: nothing is in the sums, exponents as given (one per block;
  /// none if not exact). Meanwhile nothing else uses the sums, and no group uses their copies.
  void clear(std::span<const std::int32_t> exponents, std::size_t buckets);
  /// Adds the present gradient's part of a bucket, once the compute stream gets there. `first`: the
  /// bucket's first. Whatever stream it came from, one bucket's calls are in order. Any thread.
  void add(std::size_t bucket, BlockRange blocks, bool first);
  /// The sums of a bucket that nothing was added to become zero.
  void settle(std::size_t bucket, BlockRange blocks);

  // The thread that starts operations of the group:
  /// Copies what is in the sums of a bucket, to be all-reduced in place by an operation that
  /// follows staging_stream(). Returns the copy.
  [[nodiscard]] std::span<std::uint32_t> stage(std::size_t bucket, BlockRange blocks);
  [[nodiscard]] DeviceStream staging_stream() const { return staging_; }
  /// Blocks until everything added so far is in the sums. What it returns is valid until the next
  /// call.
  [[nodiscard]] SumFindings find();
  /// The mean of what the all-reduced copies hold, sum times `scale`, goes to memory of the device
  /// (one element for each of a vector), once the compute stream gets there. The operations must be
  /// complete. Any thread.
  void take_mean(float scale, float* mean);
  /// Begins to bring an all-reduced copy to the host; the operation must be complete.
  void fetch(BlockRange blocks);
  /// Blocks until everything is there that fetch() was called for.
  void wait_until_fetched();
  /// On the host: the elements of all blocks, as far as they were fetched.
  [[nodiscard]] std::span<const std::uint32_t> fetched() const {
    return {fetched_, element_count()};
  }

 private:
  /// The state of one bucket.
  struct Bucket {
    DeviceEvent added = nullptr;   // recorded on the compute stream after the last change
    DeviceEvent staged = nullptr;  // recorded on the staging stream after the copy was made
    bool is_staged = false;        // since the last change
  };

  DeviceSums(SumCalls& calls, DeviceSumsShape shape, const GradientPlace& place);
  Result<void> allocate();
  Result<void> make_events(std::size_t buckets);
  /// The sizes of the arrays, which are one allocation each.
  struct Bytes {
    std::size_t offsets, facts, vector;
  };
  [[nodiscard]] static Bytes bytes_of(const DeviceSumsShape& shape);
  [[nodiscard]] std::size_t block_count() const { return shape_.offsets.size() - 1; }
  [[nodiscard]] std::size_t element_count() const { return shape_.offsets.back(); }
  [[nodiscard]] std::size_t bytes_of(BlockRange blocks) const;
  void begin_change(Bucket& bucket);
  void end_change(const Bucket& bucket);

  // One array on the device, so that one upload begins a step: flags, observed, exponents.
  static constexpr std::size_t kFlags = 2;
  [[nodiscard]] std::uint32_t* flags() const { return facts_; }
  [[nodiscard]] std::int32_t* observed() const {
    return reinterpret_cast<std::int32_t*>(facts_ + kFlags);
  }
  [[nodiscard]] std::int32_t* exponents() const { return observed() + block_count(); }
  [[nodiscard]] std::size_t found_words() const;

  SumCalls& calls_;
  const DeviceSumsShape shape_;
  const GradientPlace place_;
  DeviceStream staging_ = nullptr;
  DeviceEvent all_added_ = nullptr;
  std::uint32_t* offsets_ = nullptr;        // device
  std::uint32_t* facts_ = nullptr;          // device
  std::uint32_t* sums_ = nullptr;           // device
  std::uint32_t* copies_ = nullptr;         // device
  std::uint32_t* found_ = nullptr;          // host, pinned: the first words of facts_
  std::uint32_t* fetched_ = nullptr;        // host, pinned
  std::vector<std::uint32_t> first_facts_;  // what facts_ is when a step begins

  std::mutex mutex_;
  std::vector<Bucket> buckets_;  // guarded by mutex_
};

}  // namespace mayfly::collectives
