#include "collectives/transport_module.hpp"

#include <fmt/format.h>

#include "base/module_file.hpp"

namespace mayfly::collectives {
namespace {

Error unusable(const std::string& name, const Error& error) {
  return {error.code, fmt::format("the {} transport cannot be used: {}", name, error.detail)};
}

}  // namespace

const char* transport_module_build() {
  return module_build();
}

Result<const TransportModule*> load_transport_module(const std::string& name) {
  const Result<void*> function = load_module(name, kTransportModuleSymbol);
  if (!function.ok()) {
    return unusable(name, function.error());
  }
  const TransportModule* module = reinterpret_cast<TransportModuleFunction>(function.value())();
  if (Result<void> same = check_module_build(name, module->build); !same.ok()) {
    return unusable(name, same.error());
  }
  return module;
}

}  // namespace mayfly::collectives
