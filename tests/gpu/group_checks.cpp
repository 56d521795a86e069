#include "tests/gpu/group_checks.hpp"

#include <vector>

#include "tests/gpu/device_memory.hpp"
#include "tests/integration/collectives/group_checks.hpp"

namespace mayfly::collectives::gpu_test {
namespace {

using Checks = test::GroupChecks<DeviceArray>;
constexpr int kFarSeconds = 100;

std::string verdict(const std::string& wrong) {
  return wrong.empty() ? kRight : "wrong: " + wrong.substr(0, wrong.find('\n'));
}

}  // namespace

std::string check_operations(DeviceGroup& group) {
  Checks checks(group, kFarSeconds);
  std::string wrong;
  for (const std::size_t count : {0, 1, 3, 1000, 65537, 1 << 20}) {
    wrong += checks.all_reduces(count) + checks.half_sums(count) + checks.all_gather(count);
    for (std::uint32_t root = 0; root < group.size(); ++root) {
      wrong += checks.broadcast(count, root);
    }
  }
  // A single member compares no values, so its NaNs need not become canonical.
  wrong += group.size() > 1 ? checks.special_maxima() : "";
  wrong += checks.several_in_flight();
  const Result<void> met = group.barrier()->wait(far());
  return verdict(met.ok() ? wrong : wrong + met.error().detail);
}

std::string check_sum(DeviceGroup& group, std::size_t count) {
  return verdict(
      Checks(group, kFarSeconds).all_reduce<std::int32_t>(count, DataType::kInt32, ReduceOp::kSum));
}

std::string check_streams(DeviceGroup& group) {
  constexpr std::size_t kCount = 100'000;
  Stream compute;
  DeviceArray<std::int32_t> source(test::elements<std::int32_t>(value(group.rank()), kCount));
  DeviceArray<std::int32_t> data(std::vector<std::int32_t>(kCount, -1));
  compute.add_delay();
  compute.add_copy(data.data(), source.data(), kCount * sizeof(std::int32_t));
  if (const Result<void> follows = group.follow(compute.handle()); !follows.ok()) {
    return verdict("follow: " + follows.error().detail);
  }
  const auto work = group.all_reduce(data.data(), kCount, DataType::kInt32, ReduceOp::kSum);
  const Result<void> done = work->wait(far());
  if (!done.ok()) {
    return verdict("all_reduce: " + done.error().detail);
  }
  const bool is_right =
      data.values() == test::reduced<std::int32_t>(group.size(), kCount, ReduceOp::kSum);
  return verdict(is_right ? "" : "an operation that follows a stream read its data too early");
}

}  // namespace mayfly::collectives::gpu_test
