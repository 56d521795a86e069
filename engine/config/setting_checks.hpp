#pragma once

// The parts of validate() (config.hpp), by groups of settings. Each names the first thing that is
// wrong. Pure; no thread matters.

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/config.hpp"

namespace mayfly::engine {

/// An error as one line, or nothing.
using Complaint = std::optional<std::string>;

[[nodiscard]] Complaint unless(bool fine, const std::string& text);
/// A complaint unless `text`, the value of the setting `name`, is one of the known values.
[[nodiscard]] Complaint one_of(const std::string& name, const std::string& text,
                               const std::vector<std::string>& known);
/// The complaint of the first of these checks that has one.
[[nodiscard]] Complaint first_of(const JobConfig& c,
                                 std::initializer_list<Complaint (*)(const JobConfig&)> checks);
/// "HOST:PORT" that can be connected to.
[[nodiscard]] bool is_endpoint(const std::string& text);

/// The sizes of batches, which other checks divide by.
[[nodiscard]] Complaint check_batches(const JobConfig& c);
/// The groups Job, Data and Model, and the settings for the exchange of gradients.
[[nodiscard]] Complaint check_training(const JobConfig& c);
/// The groups Workers and Elasticity.
[[nodiscard]] Complaint check_workers(const JobConfig& c);
/// The group Cloud, and the hosts that take the place of a provider.
[[nodiscard]] Complaint check_cloud(const JobConfig& c);

}  // namespace mayfly::engine
