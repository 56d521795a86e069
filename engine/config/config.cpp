#include "engine/config/config.hpp"

#include <algorithm>
#include <cctype>

#include "base/parse.hpp"
#include "base/text.hpp"

namespace mayfly::engine {
namespace {

std::string normalised(std::string_view name) {
  std::string out(name);
  for (char& c : out) {
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

std::vector<std::string> setting_names() {
  std::vector<std::string> names;
  for (const Setting& setting : settings()) {
    names.push_back(setting.name);
  }
  return names;
}

/// MAYFLY_ names that are no settings, but are read by scripts, tests and programs of the user's
/// own.
bool is_reserved(const std::string& variable) {
  return variable == "MAYFLY_LAUNCHER_PID" || variable == "MAYFLY_OWNER_PID" ||
         variable == "MAYFLY_SLOT" || variable == "MAYFLY_CIFAR10_DIR" ||
         variable == "MAYFLY_CIFAR100_DIR" || variable.starts_with("MAYFLY_SIM_") ||
         variable.starts_with("MAYFLY_TEST_") || variable == kJobFileVariable ||
         variable == kLibraryVariable || variable == kProgramVariable ||
         variable == kProgramDirVariable;
}

/// Variables that Kubernetes sets in each pod for a service named "mayfly": MAYFLY_SERVICE_HOST,
/// MAYFLY_SERVICE_PORT_HTTP, MAYFLY_PORT=tcp://10.0.0.1:80, MAYFLY_PORT_80_TCP_ADDR and so on; the
/// same with MAYFLY_COORDINATOR for one named "mayfly-coordinator".
bool is_of_a_service(std::string_view variable, std::string_view value) {
  const auto holds = [](std::string_view text, const char* part) {
    return text.find(part) != std::string_view::npos;
  };
  return variable.ends_with("_SERVICE_HOST") || holds(variable, "_SERVICE_PORT") ||
         holds(variable, "_PORT_") || (variable.ends_with("_PORT") && holds(value, "://"));
}

}  // namespace

const Setting* find_setting(std::string_view name) {
  std::string wanted(name);
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  for (const Setting& setting : settings()) {
    if (setting.name == wanted) {
      return &setting;
    }
  }
  return nullptr;
}

std::string flag_name(const Setting& setting) {
  std::string flag = setting.name;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

Result<void> apply_setting(JobConfig& config, std::string_view name, std::string_view value,
                           const SettingSource& source) {
  const Setting* setting = find_setting(name);
  if (setting == nullptr) {
    return Error{Errc::kInvalidInput, source + ": unknown setting '" + std::string(name) + "'" +
                                          suggestion(name, setting_names())};
  }
  if (Result<void> done = setting->set(config, value); !done.ok()) {
    return Error{Errc::kInvalidInput, source + ": " + setting->name + " " + done.error().detail};
  }
  return {};
}

Result<void> apply_environment(JobConfig& config,
                               const std::map<std::string, std::string>& environment) {
  constexpr std::string_view kPrefix = "MAYFLY_";
  for (const auto& [variable, value] : environment) {
    if (!variable.starts_with(kPrefix) || is_reserved(variable) ||
        is_of_a_service(variable, value)) {
      continue;
    }
    const std::string name = normalised(std::string_view(variable).substr(kPrefix.size()));
    TRY(apply_setting(config, name, value, "environment " + variable));
  }
  return {};
}

std::string describe_seeds(const JobConfig& config) {
  const std::string seed = std::to_string(config.seed);
  return config.data_seed == 0 ? seed : seed + ", of the data " + std::to_string(config.data_seed);
}

std::vector<std::string> coordinator_endpoints(const JobConfig& config) {
  const std::vector<std::string_view> parts = split(config.coordinator, ',');
  return {parts.begin(), parts.end()};
}

bool has_standbys(const JobConfig& config) {
  return config.quorum || config.standby || coordinator_endpoints(config).size() > 1;
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  const std::string wanted = normalised(name);
  std::string best;
  std::size_t best_distance = (wanted.size() + 2) / 3 + 1;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(wanted, normalised(candidate));
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string suggestion(std::string_view name, const std::vector<std::string>& known) {
  const std::string nearest = nearest_name(name, known);
  return nearest.empty() ? std::string() : "; did you mean '" + nearest + "'?";
}

}  // namespace mayfly::engine
