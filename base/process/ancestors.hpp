#pragma once

// The ancestors of a process, from /proc.

#include <vector>

namespace mayfly {

/// The parent of `process`, its parent, and so on up to `ancestor`, which is the last. Empty if
/// `ancestor` is not among them: also if one between them has ended, because a process then gets
/// another parent.
[[nodiscard]] std::vector<int> ancestors_up_to(int ancestor, int process);

}  // namespace mayfly
