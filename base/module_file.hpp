#pragma once

// Parts of the program that need a library which not every machine has live in shared libraries of
// their own, libmayfly_<name>.so, beside the program. They are loaded only when asked for, so that
// one program runs everywhere and starts fast where they are not used. Any thread.

#include <string>

#include "base/beside_program.hpp"
#include "base/result.hpp"

namespace mayfly {

/// Names the version, the compiler and, by a hash of them, the sources of this build
/// (cmake/MayflyModuleBuild.cmake). C++ types cross the border between program and module, and both
/// must compute the same bits, so a module tells its own, and whoever loads it compares.
[[nodiscard]] const char* module_build();

/// Loads libmayfly_<name>.so from the program's folder or from ../lib/mayfly beside it, and returns
/// the address of the function it exports as `symbol`; it stays loaded for the life of the process.
/// kUnsupported, with what is missing: there is no such file (the build machine lacked the
/// library), a library that it needs is missing here, or it has no such function.
[[nodiscard]] Result<void*> load_module(const std::string& name, const char* symbol);

/// `build` is what the module that load_module(name) found says of itself, to be asked before
/// anything else of it is used. kUnsupported, with its path and what to do, if it is of another
/// build than this program.
[[nodiscard]] Result<void> check_module_build(const std::string& name, const char* build);

}  // namespace mayfly
