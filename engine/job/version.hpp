#pragma once

namespace mayfly::engine {

/// Workers of one job must have the same version: bits are promised within one version only.
inline constexpr const char* kVersion = "0.1.0";

}  // namespace mayfly::engine
