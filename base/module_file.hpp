#pragma once

// Parts of the program that need a library which may be missing on a machine are modules: shared
// libraries libmayfly_<name>.so beside the program. They are loaded on demand, so that one program
// runs on every machine and starts fast if they are not used. Any thread.

#include <string>

#include "base/result.hpp"

namespace mayfly {

/// Identifies this build by version, compiler and a hash of the sources
/// (cmake/MayflyModuleBuild.cmake). C++ types are passed between program and module, and both must
/// compute the same bits, so the program compares its own text with that of a module it loads.
[[nodiscard]] const char* module_build();

/// Loads libmayfly_<name>.so from the program's folder or from ../lib/mayfly beside it, and returns
/// the address of the function that it exports as `symbol`. The module stays loaded for the life of
/// the process. kUnsupported with the reason if the file does not exist (the build machine lacked
/// the library), if a library that it needs is missing on this machine, or if it has no such
/// function.
[[nodiscard]] Result<void*> load_module(const std::string& name, const char* symbol);

/// Compares `build`, the module_build() of a module that load_module(name) has loaded, with that of
/// this program; called before anything else of the module is used. kUnsupported, with the module's
/// path and the remedy, if they differ.
[[nodiscard]] Result<void> check_module_build(const std::string& name, const char* build);

}  // namespace mayfly
