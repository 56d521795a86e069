#include "collectives/transport_module.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace mayfly::collectives {
namespace {

namespace fs = std::filesystem;

Error unsupported(const std::string& name, const std::string& why) {
  return {Errc::kUnsupported, fmt::format("the {} transport cannot be used: {}", name, why)};
}

fs::path find_module(const std::string& name) {
  const std::string file = fmt::format("libmayfly_{}.so", name);
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& candidate : std::array{folder, folder / "../lib/mayfly"}) {
    if (fs::is_regular_file(candidate / file, error)) {
      return candidate / file;
    }
  }
  return {};
}

}  // namespace

const char* transport_module_build() {
  return MAYFLY_VERSION " " __VERSION__;
}

Result<const TransportModule*> load_transport_module(const std::string& name) {
  const fs::path path = find_module(name);
  if (path.empty()) {
    return unsupported(name, fmt::format("there is no libmayfly_{}.so beside the program; it is "
                                         "built where its library is installed",
                                         name));
  }
  // Never closed: the libraries behind it keep threads and exit handlers.
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return unsupported(name, ::dlerror());
  }
  const auto function =
      reinterpret_cast<TransportModuleFunction>(::dlsym(library, kTransportModuleSymbol));
  if (function == nullptr) {
    return unsupported(name, fmt::format("{} is not one of Mayfly's modules", path.string()));
  }
  const TransportModule* module = function();
  if (std::strcmp(module->build, transport_module_build()) != 0) {
    return unsupported(name, fmt::format("{} is of build {}, the program of {}", path.string(),
                                         module->build, transport_module_build()));
  }
  return module;
}

}  // namespace mayfly::collectives
