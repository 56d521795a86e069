#include "tests/gpu/group_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "collectives/plan/half_floats.hpp"
#include "collectives/plan/reduce_kernels.hpp"
#include "collectives/plan/ring_schedule.hpp"
#include "tests/gpu/device_memory.hpp"

namespace mayfly::collectives::gpu_test {
namespace {

const std::vector<std::size_t> kCounts{0, 1, 3, 1000, 65537, 1 << 20};

// Small whole numbers: their sums are the same in every order, in every type.
template <typename T>
T element(std::uint32_t rank, std::size_t i) {
  return static_cast<T>(static_cast<int>((i * 7 + rank * 13) % 16) - 8);
}

template <typename T>
std::vector<T> elements(std::uint32_t rank, std::size_t count) {
  std::vector<T> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = element<T>(rank, i);
  }
  return out;
}

template <typename T>
std::vector<T> reduced(const DeviceGroup& group, std::size_t count, ReduceOp op) {
  std::vector<T> out = elements<T>(0, count);
  for (std::uint32_t rank = 1; rank < group.size(); ++rank) {
    for (std::size_t i = 0; i < count; ++i) {
      const T other = element<T>(rank, i);
      out[i] = op == ReduceOp::kSum ? static_cast<T>(out[i] + other) : std::max(out[i], other);
    }
  }
  return out;
}

std::string failed(const char* what, std::size_t count, const std::string& why) {
  return fmt::format("wrong: {} of {} elements: {}", what, count, why);
}

// Compares bits; empty if they are the same.
template <typename T>
std::string difference(const std::vector<T>& got, const std::vector<T>& want, std::size_t first,
                       std::size_t count) {
  for (std::size_t i = first; i < first + count; ++i) {
    if (std::memcmp(&got[i], &want[i], sizeof(T)) != 0) {
      return fmt::format("element {} is {}, not {}", i, got[i], want[i]);
    }
  }
  return {};
}

template <typename T>
std::string check_reductions(DeviceGroup& group, DataType type, ReduceOp op, std::size_t count) {
  const std::vector<T> mine = elements<T>(value(group.rank()), count);
  const std::vector<T> want = reduced<T>(group, count, op);
  for (const bool scatter : {false, true}) {
    DeviceArray<T> data(mine);
    const auto work = scatter ? group.reduce_scatter(data.data(), count, type, op)
                              : group.all_reduce(data.data(), count, type, op);
    const Result<void> done = work->wait(far());
    const char* const what = scatter ? "reduce_scatter" : "all_reduce";
    if (!done.ok()) {
      return failed(what, count, done.error().detail);
    }
    const Segment part = scatter ? segment_of(count, group.size(), value(group.rank()))
                                 : Segment{.offset = 0, .count = count};
    const std::string wrong = difference(data.values(), want, part.offset, part.count);
    if (!wrong.empty()) {
      return failed(what, count, wrong);
    }
  }
  return {};
}

// 16-bit floats: as bit patterns of the same small numbers.
using Narrow = void (*)(std::span<const float>, std::span<std::uint16_t>);
std::string check_half_sum(DeviceGroup& group, DataType type, Narrow narrow, std::size_t count) {
  const auto halves = [&](const std::vector<float>& wide) {
    std::vector<std::uint16_t> out(wide.size());
    narrow(wide, out);
    return out;
  };
  DeviceArray<std::uint16_t> data(halves(elements<float>(value(group.rank()), count)));
  const auto work = group.all_reduce(data.data(), count, type, ReduceOp::kSum);
  const Result<void> done = work->wait(far());
  if (!done.ok()) {
    return failed("16-bit sum", count, done.error().detail);
  }
  const std::string wrong =
      difference(data.values(), halves(reduced<float>(group, count, ReduceOp::kSum)), 0, count);
  return wrong.empty() ? wrong : failed("16-bit sum", count, wrong);
}

// NaNs, infinities and zeros have the order of collectives/plan/reduce_kernels.
std::string check_special_floats(DeviceGroup& group) {
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
  for (std::uint32_t rank = 1; rank < group.size(); ++rank) {
    const std::vector<float> other = of_rank(rank);
    reduce(want.data(), other.data(), want.size(), DataType::kFloat32, ReduceOp::kMax);
  }
  DeviceArray<float> data(of_rank(value(group.rank())));
  const auto work = group.all_reduce(data.data(), want.size(), DataType::kFloat32, ReduceOp::kMax);
  const Result<void> done = work->wait(far());
  if (!done.ok()) {
    return failed("maximum of special floats", want.size(), done.error().detail);
  }
  const std::string wrong = difference(data.values(), want, 0, want.size());
  return wrong.empty() ? wrong : failed("maximum of special floats", want.size(), wrong);
}

std::string check_copies(DeviceGroup& group, std::size_t count) {
  const std::uint32_t me = value(group.rank());
  for (std::uint32_t root = 0; root < group.size(); ++root) {
    DeviceArray<std::int32_t> data(elements<std::int32_t>(me, count));
    const Result<void> done = group.broadcast(data.bytes(), Rank{root})->wait(far());
    const std::string wrong =
        done.ok() ? difference(data.values(), elements<std::int32_t>(root, count), 0, count)
                  : done.error().detail;
    if (!wrong.empty()) {
      return failed("broadcast", count, wrong);
    }
  }
  DeviceArray<std::int32_t> mine(elements<std::int32_t>(me, count));
  DeviceArray<std::int32_t> all(count * group.size());
  const Result<void> done = group.all_gather(mine.bytes(), all.bytes())->wait(far());
  if (!done.ok()) {
    return failed("all_gather", count, done.error().detail);
  }
  std::vector<std::int32_t> want;
  for (std::uint32_t rank = 0; rank < group.size(); ++rank) {
    const auto part = elements<std::int32_t>(rank, count);
    want.insert(want.end(), part.begin(), part.end());
  }
  const std::string wrong = difference(all.values(), want, 0, want.size());
  return wrong.empty() ? wrong : failed("all_gather", count, wrong);
}

std::string check_several_in_flight(DeviceGroup& group) {
  std::vector<std::unique_ptr<DeviceArray<std::int64_t>>> data;
  std::vector<std::unique_ptr<Work>> works;
  for (std::size_t i = 0; i < 20; ++i) {
    data.push_back(std::make_unique<DeviceArray<std::int64_t>>(
        elements<std::int64_t>(value(group.rank()), 100 * i * i)));
  }
  for (std::size_t i = 0; i < data.size(); ++i) {
    works.push_back(
        group.all_reduce(data[i]->data(), 100 * i * i, DataType::kInt64, ReduceOp::kSum));
  }
  for (std::size_t i = data.size(); i-- > 0;) {
    const std::size_t count = 100 * i * i;
    const Result<void> done = works[i]->wait(far());
    const std::string wrong =
        done.ok() ? difference(data[i]->values(),
                               reduced<std::int64_t>(group, count, ReduceOp::kSum), 0, count)
                  : done.error().detail;
    if (!wrong.empty()) {
      return failed("one of several", count, wrong);
    }
  }
  return {};
}

std::string check_all(DeviceGroup& group, std::size_t count) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    for (const std::string& wrong :
         {check_reductions<std::int32_t>(group, DataType::kInt32, op, count),
          check_reductions<std::int64_t>(group, DataType::kInt64, op, count),
          check_reductions<float>(group, DataType::kFloat32, op, count)}) {
      if (!wrong.empty()) {
        return wrong;
      }
    }
  }
  for (const std::string& wrong :
       {check_half_sum(group, DataType::kFloat16, to_fp16, count),
        check_half_sum(group, DataType::kBFloat16, to_bf16, count), check_copies(group, count)}) {
    if (!wrong.empty()) {
      return wrong;
    }
  }
  return {};
}

}  // namespace

std::string check_operations(DeviceGroup& group) {
  for (const std::size_t count : kCounts) {
    if (const std::string wrong = check_all(group, count); !wrong.empty()) {
      return wrong;
    }
  }
  // A member alone compares nothing, so its NaNs need not become the one.
  const std::string special = group.size() > 1 ? check_special_floats(group) : "";
  for (const std::string& wrong : {special, check_several_in_flight(group)}) {
    if (!wrong.empty()) {
      return wrong;
    }
  }
  const Result<void> met = group.barrier()->wait(far());
  return met.ok() ? kRight : failed("barrier", 1, met.error().detail);
}

std::string check_sum(DeviceGroup& group, std::size_t count) {
  DeviceArray<std::int32_t> data(elements<std::int32_t>(value(group.rank()), count));
  const auto work = group.all_reduce(data.data(), count, DataType::kInt32, ReduceOp::kSum);
  const Result<void> done = work->wait(far());
  const std::string wrong =
      done.ok()
          ? difference(data.values(), reduced<std::int32_t>(group, count, ReduceOp::kSum), 0, count)
          : done.error().detail;
  return wrong.empty() ? kRight : failed("all_reduce", count, wrong);
}

std::string check_streams(DeviceGroup& group) {
  constexpr std::size_t kCount = 100'000;
  Stream compute;
  DeviceArray<std::int32_t> source(elements<std::int32_t>(value(group.rank()), kCount));
  DeviceArray<std::int32_t> data(std::vector<std::int32_t>(kCount, -1));
  DeviceArray<std::int32_t> result(kCount);
  const std::size_t bytes = kCount * sizeof(std::int32_t);
  compute.add_delay();
  compute.add_copy(data.data(), source.data(), bytes);
  if (const Result<void> follows = group.follow(compute.handle()); !follows.ok()) {
    return failed("follow", kCount, follows.error().detail);
  }
  const auto work = group.all_reduce(data.data(), kCount, DataType::kInt32, ReduceOp::kSum);
  if (const Result<void> held = group.let_follow(compute.handle(), *work, far()); !held.ok()) {
    return failed("let_follow", kCount, held.error().detail);
  }
  compute.add_copy(result.data(), data.data(), bytes);
  compute.wait();
  const std::string wrong =
      difference(result.values(), reduced<std::int32_t>(group, kCount, ReduceOp::kSum), 0, kCount);
  const Result<void> done = work->wait(far());
  if (!done.ok()) {
    return failed("all_reduce", kCount, done.error().detail);
  }
  return wrong.empty() ? kRight : failed("streams", kCount, wrong);
}

}  // namespace mayfly::collectives::gpu_test
