#pragma once

// For "did you mean": how far apart two names are.

#include <cstddef>
#include <string_view>

namespace mayfly {

/// The fewest insertions, deletions, replacements and swaps of neighbours that make `b` of `a`
/// (optimal string alignment).
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace mayfly
