#pragma once

#include <string>
#include <vector>

namespace mayfly::cli {

/// The whole of a program's main(): prepares the process, calls `run` with the words after the
/// program's name and returns its exit code, or says what kept it from ending as it should.
int guarded_main(int argc, char** argv, int (*run)(const std::vector<std::string>& words));

}  // namespace mayfly::cli
