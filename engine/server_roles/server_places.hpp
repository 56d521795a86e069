#pragma once

// Which of the machines that a cloud provider has started is to be which parameter server. Machines
// are alike and come in any order; each asks the coordinator for the job's settings before it
// joins, and is told then what it is. Pure; one thread at a time.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/config.hpp"

namespace mayfly::engine {

class ServerPlaces {
 public:
  explicit ServerPlaces(const JobConfig& config);

  /// The machine with this name asks what it is, before the job's first view. The index of a
  /// parameter server, the same one whenever it asks again; nothing: all of them are taken, and it
  /// is a worker without one. So is a machine that has no name.
  [[nodiscard]] std::optional<std::uint32_t> take(const std::string& machine);
  /// The machine has come to nothing: another one may have its place.
  void gone(const std::string& machine);
  [[nodiscard]] bool has(const std::string& machine) const;

 private:
  std::vector<std::string> machines_;  // by index; empty: the place is free
};

/// What such a machine is told besides the job's settings, as TOML: that it is a parameter server,
/// or carries one (ps colocated), or does neither.
[[nodiscard]] std::string settings_of_place(const JobConfig& config,
                                            std::optional<std::uint32_t> place);

}  // namespace mayfly::engine
