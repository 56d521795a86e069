#pragma once

// Which GPU a cloud's machine type has, so that an offer whose GPU is too old is refused before
// anything is paid for. Pure.

#include <optional>
#include <string>

namespace mayfly::cloud_hooks {

struct MachineGpu {
  std::string name;    ///< "NVIDIA H100"; empty: the type has no NVIDIA GPU
  int capability = 0;  ///< compute capability, 10 * major + minor; 0: no NVIDIA GPU
};

/// The GPU of a machine type of Compute Engine ("a3-highgpu-8g", "n1-standard-8+nvidia-tesla-t4:1")
/// or of EC2 ("p5.48xlarge"). Nothing for a type that the table does not know; it may have any.
/// Sources: the clouds' pages of GPU machine types, and NVIDIA's list of compute capabilities.
[[nodiscard]] std::optional<MachineGpu> gpu_of_machine(const std::string& machine_type);

}  // namespace mayfly::cloud_hooks
