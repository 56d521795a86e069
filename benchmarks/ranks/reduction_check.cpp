#include "benchmarks/ranks/reduction_check.hpp"

#include "base/check.hpp"

namespace mayfly::bench {
namespace {

using collectives::DataType;

/// 0 to 1023, in no order that a wrong segment or a shift by a power of two would repeat.
std::uint32_t base_of(std::size_t index, std::uint64_t salt) {
  const auto mixed = static_cast<std::uint32_t>((index + salt * 7919U) * 2654435761U);
  return mixed >> 22U;
}

template <typename T>
void fill(T* data, std::size_t count, std::uint32_t rank, std::uint64_t salt) {
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = static_cast<T>(base_of(i, salt) + 3 * rank);
  }
}

template <typename T>
Result<void> check(const T* data, std::size_t count, std::uint32_t size, std::uint64_t salt) {
  const std::uint32_t offset = 3 * (size * (size - 1) / 2);
  for (std::size_t i = 0; i < count; ++i) {
    const T expected = static_cast<T>(size * base_of(i, salt) + offset);
    if (!(data[i] == expected)) {
      return Error{Errc::kDiverged, "wrong sum: element " + std::to_string(i) + " of " +
                                        std::to_string(count) + " is " + std::to_string(data[i]) +
                                        ", not " + std::to_string(expected)};
    }
  }
  return {};
}

}  // namespace

void fill_contribution(void* data, std::size_t count, DataType type, std::uint32_t rank,
                       std::uint64_t salt) {
  ENSURE(type == DataType::kFloat32 || type == DataType::kInt32, "a type that benchmarks use");
  if (type == DataType::kFloat32) {
    fill(static_cast<float*>(data), count, rank, salt);
  } else {
    fill(static_cast<std::int32_t*>(data), count, rank, salt);
  }
}

Result<void> check_sum(const void* data, std::size_t count, DataType type, std::uint32_t size,
                       std::uint64_t salt) {
  ENSURE(type == DataType::kFloat32 || type == DataType::kInt32, "a type that benchmarks use");
  return type == DataType::kFloat32
             ? check(static_cast<const float*>(data), count, size, salt)
             : check(static_cast<const std::int32_t*>(data), count, size, salt);
}

Result<DataType> parse_bench_type(const std::string& name) {
  if (name == "fp32") {
    return DataType::kFloat32;
  }
  if (name == "int32") {
    return DataType::kInt32;
  }
  return Error{Errc::kInvalidInput, "type '" + name + "' is not known; one of fp32, int32"};
}

}  // namespace mayfly::bench
