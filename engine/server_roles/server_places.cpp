#include "engine/server_roles/server_places.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/config/ps_settings.hpp"

namespace mayfly::engine {

std::optional<std::uint32_t> ServerPlaces::take(const std::string& machine) {
  if (machine.empty()) {
    return std::nullopt;
  }
  auto place = std::find(machines_.begin(), machines_.end(), machine);
  if (place == machines_.end()) {
    place = std::find(machines_.begin(), machines_.end(), std::string());
  }
  if (place == machines_.end()) {
    return std::nullopt;
  }
  *place = machine;
  return static_cast<std::uint32_t>(place - machines_.begin());
}

void ServerPlaces::hold(const std::string& machine, std::uint32_t index) {
  if (!machine.empty() && !has(machine) && index < machines_.size() && machines_[index].empty()) {
    machines_[index] = machine;
  }
}

void ServerPlaces::gone(const std::string& machine) {
  std::replace(machines_.begin(), machines_.end(), machine, std::string());
}

bool ServerPlaces::has(const std::string& machine) const {
  return !machine.empty() && std::ranges::count(machines_, machine) > 0;
}

std::size_t places_of_servers(const JobConfig& config) {
  return uses_parameter_servers(config) ? server_count(config) : 0;
}

std::string settings_of_place(const JobConfig& config, std::optional<std::uint32_t> place) {
  if (!uses_parameter_servers(config)) {
    return "";
  }
  if (carries_servers(config)) {
    return fmt::format("worker_number = {}\n", place.value_or(server_count(config)));
  }
  return place ? fmt::format("ps_server = true\nps_index = {}\n", *place) : "";
}

}  // namespace mayfly::engine
