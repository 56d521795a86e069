#pragma once

#include <string>
#include <vector>

namespace mayfly::cli {

/// The whole of a program's main(): prepares the process, calls `run` with the words after the
/// program's name and returns its exit code. Exceptions and incomplete output are reported and
/// change the exit code.
int guarded_main(int argc, char** argv, int (*run)(const std::vector<std::string>& words));

}  // namespace mayfly::cli
