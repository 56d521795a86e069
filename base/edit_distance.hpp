#pragma once

// The distance between two names, for suggestions such as "did you mean --workers?".

#include <cstddef>
#include <string_view>

namespace mayfly {

/// The least number of insertions, deletions, replacements and swaps of neighbouring characters
/// that turn `a` into `b` (optimal string alignment).
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace mayfly
