#pragma once

// Which of the machines that a cloud provider has started is to be which parameter server: machines
// are alike and come in any order, so each asks the coordinator for the job's settings before it
// joins and learns its part from them. Pure; one thread at a time.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/config.hpp"

namespace mayfly::engine {

/// A number of places, and the machines that have them.
class ServerPlaces {
 public:
  explicit ServerPlaces(std::size_t count) : machines_(count) {}

  /// The machine with this name asks what it is. The index of its place, the same one whenever it
  /// asks again. Nothing if all places are taken, or the machine has no name: it is a worker.
  [[nodiscard]] std::optional<std::uint32_t> take(const std::string& machine);
  /// The machine has come to nothing: another one may have its place.
  void gone(const std::string& machine);
  [[nodiscard]] bool has(const std::string& machine) const;

 private:
  std::vector<std::string> machines_;  // by index; empty: the place is free
};

/// How many places for parameter servers the job has before its first view.
[[nodiscard]] std::size_t places_of_servers(const JobConfig& config);

/// What such a machine is told besides the job's settings, as TOML: that it is a parameter server,
/// or carries one (ps colocated), or does neither.
[[nodiscard]] std::string settings_of_place(const JobConfig& config,
                                            std::optional<std::uint32_t> place);

}  // namespace mayfly::engine
