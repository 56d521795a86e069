#include "base/module_file.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>

#include "base/file.hpp"

namespace mayfly {
namespace {

std::string file_of(const std::string& name) {
  return fmt::format("libmayfly_{}.so", name);
}

}  // namespace

Result<void*> load_module(const std::string& name, const char* symbol) {
  const std::string path = find_beside_program(file_of(name));
  if (path.empty()) {
    return Error{Errc::kUnsupported,
                 fmt::format("there is no {} beside the program; 'scripts/build "
                             "release modules' makes it where its library is "
                             "installed",
                             file_of(name))};
  }
  // Never closed, because libraries that it uses have threads and exit handlers.
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Error{
        Errc::kUnsupported,
        fmt::format("{}; install it, or put its folder into LD_LIBRARY_PATH", ::dlerror())};
  }
  void* function = ::dlsym(library, symbol);
  if (function == nullptr) {
    return Error{Errc::kUnsupported, fmt::format("{} is not one of Mayfly's modules", path)};
  }
  return function;
}

Result<void> check_module_build(const std::string& name, const char* build) {
  if (std::strcmp(build, module_build()) == 0) {
    return {};
  }
  return Error{Errc::kUnsupported,
               fmt::format("{} is of another build than the program (the module {}, the program "
                           "{}); build both from the same sources with scripts/build, or copy "
                           "both from one machine",
                           find_beside_program(file_of(name)), build, module_build())};
}

}  // namespace mayfly
