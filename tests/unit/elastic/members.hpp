#pragma once

// Names for the first members of a job in tests.

#include "base/ids.hpp"

namespace mayfly::elastic {

inline constexpr MemberId k1{1};
inline constexpr MemberId k2{2};
inline constexpr MemberId k3{3};
inline constexpr MemberId k4{4};

}  // namespace mayfly::elastic
