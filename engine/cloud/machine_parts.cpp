#include "engine/cloud/machine_parts.hpp"

#include <cstddef>
#include <optional>

#include "base/time.hpp"
#include "engine/server_roles/ps_servers.hpp"

namespace mayfly::engine {
namespace {

// A machine may ask for its role before the provider's answer to the request has been read.
constexpr Duration kGrantPatience = seconds(5);

}  // namespace

MachineParts::MachineParts(const JobConfig& config)
    : config_(config), servers_(places_of_servers(config)), evaluators_(config.evaluators) {}

/// After the job's first view no machine becomes a parameter server, because it would not hold the
/// parameters that the job has trained.
std::string MachineParts::settings_of(const std::string& machine, const elastic::JobStatus& status,
                                      std::uint32_t wanted) {
  if (is_to_evaluate(machine, status, wanted)) {
    return "evaluator = true\n";
  }
  const std::lock_guard lock(mutex_);
  training_machines_.insert(machine);
  const bool has_begun = status.view != ViewId{};
  note_servers_locked(status);
  return settings_of_place(config_, has_begun ? std::nullopt : servers_.take(machine));
}

void MachineParts::note_servers(const elastic::JobStatus& status) {
  const std::lock_guard lock(mutex_);
  note_servers_locked(status);
}

/// A machine that has ended may have left its member behind for a moment.
void MachineParts::note_servers_locked(const elastic::JobStatus& status) {
  for (const elastic::MemberStatus& member : status.members) {
    const auto address = parse_server_address(member.address);
    if (address.ok() && address.value() && member.phase != elastic::MemberPhase::kLeaving &&
        !ended_.contains(member.server)) {
      servers_.hold(member.server, address.value()->index);
    }
  }
}

/// The offer of the machine decides if evaluators have their own offers. Otherwise training has
/// priority: the first machines become parameter servers and workers, and the next one an
/// evaluator.
bool MachineParts::is_to_evaluate(const std::string& machine, const elastic::JobStatus& status,
                                  std::uint32_t wanted) {
  if (config_.evaluators == 0 || machine.empty() || !status.in_charge) {
    return false;
  }
  std::unique_lock lock(mutex_);
  if (!config_.evaluator_offers.empty()) {
    granted_changed_.wait_for(lock, kGrantPatience, [&] { return granted_.contains(machine); });
    const auto found = granted_.find(machine);
    return found != granted_.end() && found->second;
  }
  if (!evaluators_.has(machine)) {
    std::set<std::string> working = training_machines_;
    std::size_t unnamed = 0;
    for (const elastic::MemberStatus& member : status.members) {
      if (member.phase == elastic::MemberPhase::kLeaving) {
        continue;
      }
      if (member.server.empty()) {
        ++unnamed;
      } else {
        working.insert(member.server);
      }
    }
    if (working.contains(machine) || working.size() + unnamed < wanted) {
      return false;
    }
  }
  return evaluators_.take(machine).has_value();
}

/// The evaluator may have got its role from an earlier coordinator; then it takes a place now. Or
/// its server has ended before its connection; then the place stays free for the next one.
void MachineParts::evaluates(const std::string& machine) {
  const std::lock_guard lock(mutex_);
  if (!evaluators_.has(machine) && !ended_.contains(machine)) {
    (void)evaluators_.take(machine);
  }
}

bool MachineParts::is_server(const std::string& machine) const {
  const std::lock_guard lock(mutex_);
  return servers_.has(machine);
}

void MachineParts::granted(const std::string& machine, bool for_evaluator) {
  {
    const std::lock_guard lock(mutex_);
    granted_[machine] = for_evaluator;
    ended_.erase(machine);  // a host is granted again under the same name
  }
  granted_changed_.notify_all();
}

void MachineParts::gone(const std::string& machine) {
  const std::lock_guard lock(mutex_);
  servers_.gone(machine);
  evaluators_.gone(machine);
  training_machines_.erase(machine);
  ended_.insert(machine);
}

}  // namespace mayfly::engine
