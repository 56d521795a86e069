#pragma once

// The ancestors of a process, from /proc.

#include <vector>

namespace mayfly {

/// The parent of `process`, its parent, and so on, as far as the system shows them.
[[nodiscard]] std::vector<int> ancestors_of(int process);

/// The same up to `ancestor`, which is the last. Empty if `ancestor` is not among them: also if one
/// between them has ended, because a process then gets another parent.
[[nodiscard]] std::vector<int> ancestors_up_to(int ancestor, int process);

}  // namespace mayfly
