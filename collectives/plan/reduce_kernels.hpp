#pragma once

#include <cstddef>

#include "collectives/plan/types.hpp"

namespace mayfly::collectives {

/// dst[i] = dst[i] op src[i] for `count` elements of `type`; both aligned to the element, not
/// overlapping. Integer sums wrap around. The maximum of floats is a total order (-0 below +0) in
/// which any NaN wins and becomes one fixed NaN, so that it is the same bits in every order.
void reduce(void* dst, const void* src, std::size_t count, DataType type, ReduceOp op);

/// What a reduction does to the vector of the only member: nothing, except that a maximum makes
/// every NaN the one it makes of them in larger groups.
void reduce_alone(void* data, std::size_t count, DataType type, ReduceOp op);

}  // namespace mayfly::collectives
