#pragma once

// Data with a known sum over the ranks for every element, so that a benchmark can check the results
// that it has timed. Pure.

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "collectives/plan/reduce_kernels.hpp"

namespace mayfly::bench {

/// Fills `count` elements of kFloat32 or kInt32 with the contribution of `rank`: small integers
/// that depend on the element, the rank and `salt`, whose sums over up to 1,000 ranks are exact in
/// both types. Another salt has other sums, so earlier results are not taken for new ones.
void fill_contribution(void* data, std::size_t count, collectives::DataType type,
                       std::uint32_t rank, std::uint64_t salt);

/// Compares every element with the sum over `size` ranks. kDiverged names the first wrong one.
[[nodiscard]] Result<void> check_sum(const void* data, std::size_t count,
                                     collectives::DataType type, std::uint32_t size,
                                     std::uint64_t salt);

/// "fp32" or "int32"; kInvalidInput for others.
[[nodiscard]] Result<collectives::DataType> parse_bench_type(const std::string& name);

}  // namespace mayfly::bench
