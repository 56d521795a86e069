#pragma once

// The sums of this worker's own microbatches for one step, before the all-reduce. The all-reduce
// works in other buffers: if the group fails during a step, these sums are still valid in the next
// view, and only the microbatches of lost members are computed again.

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "collectives/nccl/device_sums.hpp"
#include "collectives/plan/wrapped_sum.hpp"
#include "engine/config/derived_settings.hpp"
#include "engine/reduction/reduction_layout.hpp"

namespace mayfly::engine {

/// Integer facts about a step that are summed beside the gradients.
struct StepTotals {
  // Each member counts at most kBlocksCounted, because only zero and non-zero are distinguished.
  std::int32_t overflows = 0;  ///< blocks that did not fit their exponent
  std::int32_t nonfinite = 0;  ///< blocks with an infinity or NaN
  std::int32_t samples = 0;
  std::int32_t correct = 0;
  /// Sum, lane by lane and modulo 2^32, of a 128-bit hash of every sample id: equal to the closed
  /// form exactly if each sample was counted once (up to a chance of 2^-128).
  std::array<std::uint32_t, 4> sample_hash{};

  void add_sample(std::uint64_t sample_id);

  /// The most blocks that one member counts, so that the sum over 2^16 members fits.
  static constexpr std::int32_t kBlocksCounted = 0x7fff;
};
static_assert(sizeof(StepTotals) == 8 * sizeof(std::int32_t), "summed as eight 32-bit lanes");

/// Thread-safe accumulation of microbatch gradients, bucket by bucket.
class GradientSums {
 public:
  /// `microbatches`: of a step, over all workers. `seed`: of the random numbers with which
  /// Wire::kInt16 rounds.
  GradientSums(const ReductionLayout& layout, Wire wire, std::uint32_t microbatches,
               std::uint64_t seed = 0);

  /// From now on the sums of parameters are kept on a device, where the gradients are, and
  /// add_bucket() does not read the part of its vector that belongs to parameters. Wire::kInt32 and
  /// Wire::kFp32 only; to be called before the first clear(). `device` outlives the sums.
  void keep_on(collectives::DeviceSums& device);
  [[nodiscard]] bool on_device() const { return device_ != nullptr; }

  /// Starts a step with these exponents (one per block; unused in fp32) and empty sums.
  void clear(std::span<const std::int32_t> exponents, std::uint64_t step = 0);

  /// Adds one microbatch's part of a bucket. `vector` is the whole flat vector of that microbatch.
  void add_bucket(std::size_t bucket, std::span<const float> vector, std::uint32_t microbatch = 0);
  /// Sets the words of a bucket to zero if no microbatch was added. To be called before they are
  /// read; any thread. The call for the last bucket also reads the counts of the device; then every
  /// microbatch must be in all buckets.
  void settle(std::size_t bucket);
  /// Adds the counts of one microbatch.
  void add_totals(const StepTotals& totals);

  /// The sums as 32-bit words: int32 if exact, else float. They do not change any more once every
  /// microbatch was added. The words of a bucket are undefined before its first microbatch or
  /// settle(); those of parameters are never defined if their sums are on a device.
  [[nodiscard]] std::span<const std::uint32_t> words() const { return words_.span(); }
  /// The largest exponent that any microbatch needed, per block (exact only).
  [[nodiscard]] std::span<const std::int32_t> observed() const { return observed_; }
  [[nodiscard]] StepTotals totals() const;
  [[nodiscard]] int bits() const { return bits_; }

 private:
  /// A bucket's mutex, which also guards its words and observed exponents.
  struct BucketState {
    std::mutex mutex;
    bool empty = true;
  };

  void add_exact(const ReductionLayout::Bucket& bucket, std::span<const float> vector,
                 std::uint32_t microbatch, collectives::Accumulate mode);
  void add_plain(const ReductionLayout::Bucket& bucket, std::span<const float> vector,
                 collectives::Accumulate mode);
  [[nodiscard]] collectives::QuantizeResult add_block(std::size_t block,
                                                      std::span<const float> part,
                                                      collectives::RoundingKey key,
                                                      collectives::Accumulate mode);

  [[nodiscard]] ReductionLayout::Bucket words_of(std::size_t bucket) const;
  void find_on_device();

  const ReductionLayout& layout_;
  Wire wire_;
  int bits_;
  std::uint64_t seed_;
  std::uint64_t step_ = 0;
  std::size_t first_parameter_block_;
  AlignedBuffer<std::uint32_t> words_;
  std::vector<std::int32_t> exponents_;
  std::vector<std::int32_t> observed_;
  std::vector<BucketState> buckets_;
  collectives::DeviceSums* device_ = nullptr;  // null: all sums are in words_
  mutable std::mutex totals_mutex_;
  StepTotals totals_;     // guarded by totals_mutex_
  StepTotals on_device_;  // the counts of the device; guarded by totals_mutex_
};

}  // namespace mayfly::engine
