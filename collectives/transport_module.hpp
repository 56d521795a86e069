#pragma once

// Transports that need a library which not every machine has (Open MPI, NCCL with CUDA) are built
// as shared libraries of their own, libmayfly_<name>.so, beside the program. They are loaded only
// when they are used, so that one program runs on every machine and starts fast without them.

#include <memory>
#include <string>

#include "base/result.hpp"
#include "collectives/group.hpp"
#include "collectives/nccl/sum_calls.hpp"

namespace mayfly::collectives {

/// The settings of a module's transport.
struct ModuleOptions {
  /// This member's address or its name; selects the interface.
  std::string bind_host = "127.0.0.1";
  int device = 0;            ///< index of the GPU, where the module uses one
  bool is_shared = false;    ///< another process of this machine uses that GPU, too
  bool share_cores = false;  ///< waiting threads must yield the cores to other threads
};

/// The table that mayfly_transport_module() of a module returns. All functions: one thread at a
/// time.
struct TransportModule {
  const char* build;  ///< equals transport_module_build() of the program that may load it
  /// Ok if the machine has everything that the module needs, otherwise kUnsupported with one line
  /// that names the missing part. Cheap; starts nothing permanent.
  Result<void> (*probe)();
  Result<std::unique_ptr<Transport>> (*make)(const ModuleOptions& options);
  /// Makes the functions for sums in the memory of a GPU; then the module's transport forms
  /// DeviceGroups. Null: its groups work in host memory.
  Result<std::unique_ptr<SumCalls>> (*make_sum_calls)(int device) = nullptr;
};

/// The one symbol that a module exports.
inline constexpr const char* kTransportModuleSymbol = "mayfly_transport_module";
using TransportModuleFunction = const TransportModule* (*)();

/// Identifies the sources and compiler of this build. C++ types are passed between program and
/// module, so both must come from the same build.
[[nodiscard]] const char* transport_module_build();

/// Loads libmayfly_<name>.so from the program's folder or from ../lib/mayfly beside it; it stays
/// loaded for the life of the process. kUnsupported, with what is missing: there is no such file
/// (the build machine lacked the library), a library that it needs is missing here, or it is of
/// another build.
[[nodiscard]] Result<const TransportModule*> load_transport_module(const std::string& name);

}  // namespace mayfly::collectives
