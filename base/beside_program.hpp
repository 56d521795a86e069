#pragma once

// Files that belong to the program: modules and other programs. Any thread.

#include <string>

namespace mayfly {

/// The path of such a file: in the program's own folder, or in ../lib/mayfly beside that. Empty if
/// it is in neither.
[[nodiscard]] std::string find_beside_program(const std::string& file);

}  // namespace mayfly
