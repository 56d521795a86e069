#pragma once

// Assigns the job's parameter servers to machines that a cloud provider has started. The machines
// are alike and start in any order, so each one asks the coordinator for the job's settings before
// it joins, and the settings contain its role. Pure; one thread at a time.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/config.hpp"

namespace mayfly::engine {

/// A number of places, and the machines to which they are assigned.
class ServerPlaces {
 public:
  explicit ServerPlaces(std::size_t count) : machines_(count) {}

  /// The index of the place of the machine with this name, the same one in each call. Nothing if
  /// all places are assigned or the machine has no name: then it is a worker.
  [[nodiscard]] std::optional<std::uint32_t> take(const std::string& machine);
  /// The machine has the place with this index already; an earlier coordinator has assigned it.
  /// Ignored if the machine or the place is assigned otherwise, or if there is no such place.
  void hold(const std::string& machine, std::uint32_t index);
  /// To be called when the machine does not exist any more: frees its place.
  void gone(const std::string& machine);
  [[nodiscard]] bool has(const std::string& machine) const;

 private:
  std::vector<std::string> machines_;  // by index; empty: the place is free
};

/// The number of places for parameter servers before the job's first view.
[[nodiscard]] std::size_t places_of_servers(const JobConfig& config);

/// The additional settings of such a machine, as TOML: whether it is a parameter server or carries
/// one (ps colocated).
[[nodiscard]] std::string settings_of_place(const JobConfig& config,
                                            std::optional<std::uint32_t> place);

}  // namespace mayfly::engine
