#include "collectives/nccl/device_sums.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.hpp"
#include "base/gpu_facts.hpp"
#include "base/try_assign.hpp"
#include "collectives/plan/exact_sum.hpp"

namespace mayfly::collectives {
namespace {

constexpr std::size_t kWord = sizeof(std::uint32_t);

}  // namespace

Result<std::unique_ptr<DeviceSums>> DeviceSums::make(SumCalls& calls, DeviceSumsShape shape,
                                                     const GradientPlace& place) {
  std::unique_ptr<DeviceSums> sums(new DeviceSums(calls, std::move(shape), place));
  TRY(sums->allocate());
  return sums;
}

DeviceSums::DeviceSums(SumCalls& calls, DeviceSumsShape shape, const GradientPlace& place)
    : calls_(calls), shape_(std::move(shape)), place_(place) {
  ENSURE(!shape_.offsets.empty() && shape_.offsets.front() == 0, "blocks begin with the vector");
  first_facts_.assign(bytes_of(shape_).facts / kWord, 0);
}

DeviceSums::Bytes DeviceSums::bytes_of(const DeviceSumsShape& shape) {
  const std::size_t blocks = shape.offsets.size() - 1;
  return {.offsets = shape.offsets.size() * kWord,
          .facts = (kFlags + (shape.exact ? 2 * blocks : 0)) * kWord,
          .vector = std::max<std::size_t>(1, shape.offsets.back()) * kWord};
}

std::size_t DeviceSums::device_bytes(const DeviceSumsShape& shape) {
  const Bytes bytes = bytes_of(shape);
  return bytes.offsets + bytes.facts + 2 * bytes.vector;
}

Result<void> DeviceSums::allocate() {
  TRY(calls_.bind_thread());
  const Bytes bytes = bytes_of(shape_);
  const struct {
    std::uint32_t** memory;
    std::size_t bytes;
    bool pinned;
  } parts[] = {{&offsets_, bytes.offsets, false},      {&facts_, bytes.facts, false},
               {&sums_, bytes.vector, false},          {&copies_, bytes.vector, false},
               {&found_, found_words() * kWord, true}, {&fetched_, bytes.vector, true}};
  for (const auto& part : parts) {
    TRY_ASSIGN(auto memory,
               part.pinned ? calls_.allocate_pinned(part.bytes) : calls_.allocate(part.bytes));
    *part.memory = static_cast<std::uint32_t*>(memory);
  }
  Result<DeviceStream> stream = calls_.make_stream();
  if (!stream.ok()) {
    return std::move(stream).error();
  }
  staging_ = stream.value();
  TRY_ASSIGN(all_added_, calls_.make_event());
  // Uploaded on the compute stream, because the kernels there read it.
  return calls_.upload(offsets_, shape_.offsets.data(), bytes.offsets, place_.stream);
}

DeviceSums::~DeviceSums() {
  // After a failure there is nothing to wait for, and a destructor could not report the error.
  (void)calls_.bind_thread();
  (void)calls_.wait_for(place_.stream);
  if (staging_ != nullptr) {
    (void)calls_.wait_for(staging_);
    calls_.destroy_stream(staging_);
  }
  for (const Bucket& bucket : buckets_) {
    for (const DeviceEvent event : {bucket.added, bucket.staged}) {
      if (event != nullptr) {
        calls_.destroy_event(event);
      }
    }
  }
  if (all_added_ != nullptr) {
    calls_.destroy_event(all_added_);
  }
  for (std::uint32_t* memory : {offsets_, facts_, sums_, copies_}) {
    calls_.release(memory);
  }
  for (std::uint32_t* memory : {found_, fetched_}) {
    calls_.release_pinned(memory);
  }
}

std::size_t DeviceSums::found_words() const {
  return kFlags + (shape_.exact ? block_count() : 0);
}

std::size_t DeviceSums::bytes_of(BlockRange blocks) const {
  return (shape_.offsets[blocks.last] - shape_.offsets[blocks.first]) * kWord;
}

Result<void> DeviceSums::make_events(std::size_t buckets) {
  while (buckets_.size() < buckets) {
    Bucket bucket;
    for (DeviceEvent* event : {&bucket.added, &bucket.staged}) {
      TRY_ASSIGN(*event, calls_.make_event());
    }
    buckets_.push_back(bucket);
  }
  return {};
}

void DeviceSums::clear(std::span<const std::int32_t> exponents, std::size_t buckets) {
  ENSURE(exponents.size() == (shape_.exact ? block_count() : 0), "one exponent per block");
  require_gpu(calls_.bind_thread());
  const std::lock_guard lock(mutex_);
  require_gpu(make_events(buckets));
  for (Bucket& bucket : buckets_) {
    // A copy in progress reads sums of the previous step, so the compute stream waits for it.
    if (bucket.is_staged) {
      require_gpu(calls_.hold(place_.stream, bucket.staged));
      bucket.is_staged = false;
    }
  }
  if (shape_.exact) {
    const auto unset = std::bit_cast<std::uint32_t>(kUnsetExponent);
    const auto first = first_facts_.begin() + kFlags;
    std::fill_n(first, block_count(), unset);
    std::ranges::transform(exponents, first + static_cast<std::ptrdiff_t>(block_count()),
                           [](std::int32_t e) { return std::bit_cast<std::uint32_t>(e); });
  }
  require_gpu(
      calls_.upload(facts_, first_facts_.data(), first_facts_.size() * kWord, place_.stream));
}

/// To be called before the sums of a bucket change on the compute stream: it waits until they are
/// copied.
void DeviceSums::begin_change(Bucket& bucket) {
  if (bucket.is_staged) {
    require_gpu(calls_.hold(place_.stream, bucket.staged));
    bucket.is_staged = false;
  }
}

void DeviceSums::end_change(const Bucket& bucket) {
  require_gpu(calls_.record(bucket.added, place_.stream));
}

void DeviceSums::add(std::size_t bucket, BlockRange blocks, bool first) {
  require_gpu(calls_.bind_thread());
  const std::lock_guard lock(mutex_);
  begin_change(buckets_[bucket]);
  const SumTask task{.gradient = place_.gradient,
                     .sums = sums_,
                     .offsets = offsets_,
                     .exponents = shape_.exact ? exponents() : nullptr,
                     .observed = shape_.exact ? observed() : nullptr,
                     .flags = flags(),
                     .blocks = blocks,
                     .first = first,
                     .exact = shape_.exact,
                     .bits = shape_.bits};
  require_gpu(calls_.add(task, place_.stream));
  end_change(buckets_[bucket]);
}

void DeviceSums::settle(std::size_t bucket, BlockRange blocks) {
  require_gpu(calls_.bind_thread());
  const std::lock_guard lock(mutex_);
  begin_change(buckets_[bucket]);
  require_gpu(calls_.clear(sums_ + shape_.offsets[blocks.first], bytes_of(blocks), place_.stream));
  end_change(buckets_[bucket]);
}

std::span<std::uint32_t> DeviceSums::stage(std::size_t bucket, BlockRange blocks) {
  require_gpu(calls_.bind_thread());
  const std::lock_guard lock(mutex_);
  const std::uint32_t first = shape_.offsets[blocks.first];
  require_gpu(calls_.hold(staging_, buckets_[bucket].added));
  require_gpu(calls_.copy(copies_ + first, sums_ + first, bytes_of(blocks), staging_));
  require_gpu(calls_.record(buckets_[bucket].staged, staging_));
  buckets_[bucket].is_staged = true;
  return {copies_ + first, bytes_of(blocks) / kWord};
}

SumFindings DeviceSums::find() {
  require_gpu(calls_.bind_thread());
  require_gpu(calls_.record(all_added_, place_.stream));
  require_gpu(calls_.hold(staging_, all_added_));
  require_gpu(calls_.download(found_, facts_, found_words() * kWord, staging_));
  require_gpu(calls_.wait_for(staging_));
  const auto* const seen = reinterpret_cast<const std::int32_t*>(found_ + kFlags);
  return {.overflows = found_[0],
          .nonfinite = found_[1],
          .observed = {seen, shape_.exact ? block_count() : 0}};
}

void DeviceSums::take_mean(float scale, float* mean) {
  require_gpu(calls_.bind_thread());
  const std::lock_guard lock(mutex_);
  // No later copy can change them: it follows later changes of the sums, which follow this call on
  // the compute stream.
  for (const Bucket& bucket : buckets_) {
    if (bucket.is_staged) {
      require_gpu(calls_.hold(place_.stream, bucket.staged));
    }
  }
  require_gpu(calls_.mean({.sums = copies_,
                           .offsets = offsets_,
                           .exponents = shape_.exact ? exponents() : nullptr,
                           .blocks = static_cast<std::uint32_t>(block_count()),
                           .exact = shape_.exact,
                           .bits = shape_.bits,
                           .scale = scale,
                           .mean = mean},
                          place_.stream));
}

void DeviceSums::fetch(BlockRange blocks) {
  require_gpu(calls_.bind_thread());
  const std::uint32_t first = shape_.offsets[blocks.first];
  require_gpu(calls_.download(fetched_ + first, copies_ + first, bytes_of(blocks), staging_));
}

void DeviceSums::wait_until_fetched() {
  require_gpu(calls_.bind_thread());
  require_gpu(calls_.wait_for(staging_));
}

}  // namespace mayfly::collectives
