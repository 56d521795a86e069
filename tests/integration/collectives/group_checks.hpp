#pragma once

// Checks of the promises that every Group keeps if nothing fails. All members of a group call a
// check at once: threads of one process (group_contract_test.cpp), ranks of an mpirun
// (mpi_contract_program.cpp), processes with a GPU (tests/gpu/group_checks.cpp). `Array` is the
// kind of memory. Each check returns a description of the error, or "".

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "collectives/group.hpp"
#include "collectives/plan/half_floats.hpp"
#include "collectives/plan/reduce_kernels.hpp"

namespace mayfly::collectives::test {

/// An array in the memory of the process.
template <typename T>
class HostArray {
 public:
  explicit HostArray(std::size_t count) : values_(count) {}
  explicit HostArray(std::vector<T> values) : values_(std::move(values)) {}

  [[nodiscard]] const std::vector<T>& values() const { return values_; }
  [[nodiscard]] T* data() { return values_.data(); }
  [[nodiscard]] std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(values_)); }

 private:
  std::vector<T> values_;
};

/// Whole numbers that differ between ranks. Their sums are exact in every type and every order.
template <typename T>
std::vector<T> elements(std::uint32_t rank, std::size_t count) {
  std::vector<T> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto mixed = static_cast<std::int64_t>((i * 2654435761U + rank * 40503U) % 2003U);
    out[i] = static_cast<T>((mixed - 1000) * (rank % 2 == 0 ? 1 : 3));
  }
  return out;
}

template <typename T>
std::vector<T> reduced(std::uint32_t size, std::size_t count, ReduceOp op) {
  std::vector<T> out = elements<T>(0, count);
  for (std::uint32_t rank = 1; rank < size; ++rank) {
    const std::vector<T> other = elements<T>(rank, count);
    for (std::size_t i = 0; i < count; ++i) {
      out[i] =
          op == ReduceOp::kSum ? static_cast<T>(out[i] + other[i]) : std::max(out[i], other[i]);
    }
  }
  return out;
}

/// `far`: a time in seconds that only a hang can take.
template <template <typename> class Array = HostArray>
class GroupChecks {
 public:
  explicit GroupChecks(Group& group, int far = 60) : group_(group), far_(far) {}

  template <typename T>
  std::string all_reduce(std::size_t count, DataType type, ReduceOp op) {
    Array<T> data(elements<T>(rank(), count));
    const Result<void> done =
        count % 2 == 0 ? group_.all_reduce_blocking(data.data(), count, type, op, deadline())
                       : group_.all_reduce(data.data(), count, type, op)->wait(deadline());
    return difference("all_reduce", done, data.values(), reduced<T>(size(), count, op));
  }

  /// Sums and maxima of the types that all transports can reduce.
  std::string all_reduces(std::size_t count) {
    std::string wrong;
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
      wrong += all_reduce<std::int32_t>(count, DataType::kInt32, op);
      wrong += all_reduce<std::int64_t>(count, DataType::kInt64, op);
      wrong += all_reduce<float>(count, DataType::kFloat32, op);
    }
    return wrong;
  }

  /// Sums of fp16 and bf16 numbers have the bits of Mayfly's kernels.
  std::string half_sums(std::size_t count) {
    std::string wrong;
    for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
      const auto halves = [&](float number) {
        std::vector<std::uint16_t> out(count);
        (type == DataType::kFloat16 ? to_fp16 : to_bf16)(std::vector<float>(count, number), out);
        return out;
      };
      Array<std::uint16_t> data(halves(0.5F));
      const auto work = group_.all_reduce(data.data(), count, type, ReduceOp::kSum);
      const Result<void> done = work->wait(deadline());
      wrong +=
          difference("16-bit sum", done, data.values(), halves(0.5F * static_cast<float>(size())));
    }
    return wrong;
  }

  /// Maxima of floats use a total order: -0 is below +0, and all NaNs are equal and above the rest.
  std::string special_maxima() {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float infinity = std::numeric_limits<float>::infinity();
    const std::vector<float> special{nan, -nan, infinity, -infinity, 0.0F, -0.0F, 1.0F, -1.0F};
    const auto of_rank = [&](std::uint32_t rank) {
      std::vector<float> out(special.size() * special.size());
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = special[rank % 2 == 0 ? i % special.size() : i / special.size()];
      }
      return out;
    };
    std::vector<float> want = of_rank(0);
    reduce_alone(want.data(), want.size(), DataType::kFloat32, ReduceOp::kMax);
    for (std::uint32_t other = 1; other < size(); ++other) {
      const std::vector<float> numbers = of_rank(other);
      reduce(want.data(), numbers.data(), want.size(), DataType::kFloat32, ReduceOp::kMax);
    }
    Array<float> data(of_rank(rank()));
    const auto work =
        group_.all_reduce(data.data(), want.size(), DataType::kFloat32, ReduceOp::kMax);
    const Result<void> done = work->wait(deadline());
    return difference("maximum of special floats", done, data.values(), want);
  }

  /// Sums of any floats have the same bits on all members.
  std::string float_sums(std::size_t count) {
    std::mt19937 random(rank() + 1);
    std::uniform_real_distribution<float> numbers(-1, 1);
    std::vector<float> own(count);
    std::generate(own.begin(), own.end(), [&] { return numbers(random); });
    Array<float> data(own);
    const auto work = group_.all_reduce(data.data(), count, DataType::kFloat32, ReduceOp::kSum);
    if (const Result<void> done = work->wait(deadline()); !done.ok()) {
      return failed("float sum", count, done.error().detail);
    }
    const std::vector<float> sum = data.values();
    std::vector<float> want;
    for (std::uint32_t other = 0; other < size(); ++other) {
      want.insert(want.end(), sum.begin(), sum.end());
    }
    return gathered("float sums of all members", sum, want);
  }

  std::string broadcast(std::size_t count, std::uint32_t root) {
    Array<std::int32_t> data(elements<std::int32_t>(rank(), count));
    const Result<void> done = group_.broadcast(data.bytes(), Rank{root})->wait(deadline());
    return difference("broadcast", done, data.values(), elements<std::int32_t>(root, count));
  }

  std::string all_gather(std::size_t count) {
    std::vector<std::int32_t> want;
    for (std::uint32_t other = 0; other < size(); ++other) {
      const std::vector<std::int32_t> part = elements<std::int32_t>(other, count);
      want.insert(want.end(), part.begin(), part.end());
    }
    return gathered("all_gather", elements<std::int32_t>(rank(), count), want);
  }

  /// Several operations may be in flight; they run in order, and waiting in another order is fine.
  std::string several_in_flight() {
    std::vector<std::unique_ptr<Array<std::int64_t>>> data;
    std::vector<std::unique_ptr<Work>> works;
    for (std::size_t i = 0; i < 20; ++i) {
      data.push_back(
          std::make_unique<Array<std::int64_t>>(elements<std::int64_t>(rank(), 100 * i * i)));
    }
    for (std::size_t i = 0; i < data.size(); ++i) {
      works.push_back(
          group_.all_reduce(data[i]->data(), 100 * i * i, DataType::kInt64, ReduceOp::kSum));
    }
    std::string wrong;
    for (std::size_t i = data.size(); i-- > 0;) {
      const Result<void> done = works[i]->wait(deadline());
      wrong += difference("one of several", done, data[i]->values(),
                          reduced<std::int64_t>(size(), 100 * i * i, ReduceOp::kSum));
    }
    return wrong;
  }

 private:
  [[nodiscard]] std::uint32_t rank() const { return value(group_.rank()); }
  [[nodiscard]] std::uint32_t size() const { return group_.size(); }
  [[nodiscard]] Instant deadline() const { return monotonic_now() + seconds(far_); }

  static std::string failed(const char* what, std::size_t count, const std::string& why) {
    return fmt::format("{} of {} elements: {}\n", what, count, why);
  }

  /// Compares the bits of two arrays.
  template <typename T>
  static std::string difference(const char* what, const Result<void>& done,
                                const std::vector<T>& got, const std::vector<T>& want) {
    if (!done.ok()) {
      return failed(what, want.size(), done.error().detail);
    }
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (std::memcmp(&got[i], &want[i], sizeof(T)) != 0) {
        return failed(what, want.size(),
                      fmt::format("element {} is {}, not {}", i, got[i], want[i]));
      }
    }
    return {};
  }

  template <typename T>
  std::string gathered(const char* what, const std::vector<T>& own, const std::vector<T>& want) {
    Array<T> mine(own);
    Array<T> all(want.size());
    const Result<void> done = group_.all_gather(mine.bytes(), all.bytes())->wait(deadline());
    return difference(what, done, all.values(), want);
  }

  Group& group_;
  const int far_;
};

}  // namespace mayfly::collectives::test
