#pragma once

// A worker's gradient sums in the memory of its GPU. Each microbatch's gradient is added there as
// soon as it is complete on the compute stream. Copies of the sums are reduced by a group of GPUs,
// bucket by bucket, and the results are fetched to the host.
//
// There are two streams. On the compute stream, which is the engine's, gradients are added to the
// sums. On the staging stream sums are copied for the exchange, and results to the host; if the
// update is made on the device, the mean stays there, on the compute stream. Events, one for each
// bucket and direction, keep the streams in order. So a bucket's copy does not wait for the rest of
// a backward pass that is already on the compute stream.
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

/// The place of a microbatch's gradient in the engine's memory, always the same.
struct GradientPlace {
  const float* gradient = nullptr;
  DeviceStream stream = nullptr;  ///< work that is submitted to it sees all earlier work
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

  /// Begins a step of so many buckets: the sums are empty, and exponents are as given (one per
  /// block; none if not exact). No other thread may use the sums meanwhile, and no group their
  /// copies.
  void clear(std::span<const std::int32_t> exponents, std::size_t buckets);
  /// Adds the present gradient's part of a bucket, in the order of the compute stream. `first`: the
  /// first one of the bucket. A bucket's calls are carried out in order, whatever stream computed
  /// the gradient. Any thread.
  void add(std::size_t bucket, BlockRange blocks, bool first);
  /// Sets the sums of a bucket without any gradient to zero.
  void settle(std::size_t bucket, BlockRange blocks);

  // The thread that starts operations of the group:
  /// Copies the sums of a bucket, to be all-reduced in place by an operation that follows
  /// staging_stream(). Returns the copy.
  [[nodiscard]] std::span<std::uint32_t> stage(std::size_t bucket, BlockRange blocks);
  [[nodiscard]] DeviceStream staging_stream() const { return staging_; }
  /// Blocks until everything added so far is in the sums. The result is valid until the next call.
  [[nodiscard]] SumFindings find();
  /// Computes the mean from the all-reduced copies (sum times `scale`) in device memory, one
  /// element for each element of the vector, in the order of the compute stream. The operations
  /// must be complete. Any thread.
  void take_mean(float scale, float* mean);
  /// Begins to copy an all-reduced copy to the host; the operation must be complete.
  void fetch(BlockRange blocks);
  /// Blocks until everything has arrived that fetch() was called for.
  void wait_until_fetched();
  /// The elements of all blocks on the host, as far as they were fetched.
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
  std::vector<std::uint32_t> first_facts_;  // the contents of facts_ when a step begins

  std::mutex mutex_;
  std::vector<Bucket> buckets_;  // guarded by mutex_
};

}  // namespace mayfly::collectives
