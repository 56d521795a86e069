#include "tests/sim/world.hpp"

#include "base/check.hpp"
#include "base/random.hpp"
#include "tests/sim/parameter_server_checks.hpp"

namespace mayfly::sim {
namespace {

std::string replay_command(std::uint64_t seed, const std::string& world,
                           const std::string& sabotage) {
  return "mayfly simulate" + world + " --replay " + std::to_string(seed) +
         (sabotage == "none" ? std::string() : " --sabotage " + sabotage);
}

class MembershipWorld final : public World {
 public:
  [[nodiscard]] std::string name() const override { return "membership"; }
  [[nodiscard]] std::vector<std::string> sabotages() const override {
    std::vector<std::string> names;
    for (const Sabotage sabotage : all_sabotages()) {
      names.emplace_back(name_of(sabotage));
    }
    return names;
  }
  [[nodiscard]] Outcome play(std::uint64_t seed, const std::string& sabotage) const override {
    Scenario scenario = draw_scenario(seed);
    for (const Sabotage each : all_sabotages()) {
      scenario.sabotage = sabotage == name_of(each) ? each : scenario.sabotage;
    }
    ENSURE(sabotage == name_of(scenario.sabotage), "the world's own list has that name");
    return outcome_of(scenario, simulate(scenario));
  }
};

class CoordinatorsWorld final : public World {
 public:
  [[nodiscard]] std::string name() const override { return "failover"; }
  [[nodiscard]] std::vector<std::string> sabotages() const override {
    std::vector<std::string> names;
    for (const BrokenCore broken : all_broken_cores()) {
      names.emplace_back(name_of(broken));
    }
    return names;
  }
  [[nodiscard]] Outcome play(std::uint64_t seed, const std::string& sabotage) const override {
    FailoverScenario scenario = draw_failover(seed);
    for (const BrokenCore each : all_broken_cores()) {
      scenario.broken = sabotage == name_of(each) ? each : scenario.broken;
    }
    ENSURE(sabotage == name_of(scenario.broken), "the world's own list has that name");
    return outcome_of(scenario, simulate(scenario));
  }
};

class ParameterServerWorld final : public World {
 public:
  [[nodiscard]] std::string name() const override { return "parameter-servers"; }
  [[nodiscard]] std::vector<std::string> sabotages() const override {
    std::vector<std::string> names;
    for (const PsSabotage each : kAllPsSabotage) {
      names.push_back(to_text(each));
    }
    return names;
  }
  [[nodiscard]] Outcome play(std::uint64_t seed, const std::string& sabotage) const override {
    PsOptions scenario = draw_parameter_server(seed);
    for (const PsSabotage each : kAllPsSabotage) {
      scenario.sabotage = sabotage == to_text(each) ? each : scenario.sabotage;
    }
    ENSURE(sabotage == to_text(scenario.sabotage), "the world's own list has that name");
    return outcome_of(scenario, run_parameter_server(scenario));
  }
};

/// A hash of the lines, in order.
std::uint64_t fingerprint_of(const std::vector<std::string>& lines) {
  std::uint64_t hash = 0;
  for (const std::string& line : lines) {
    for (const char c : line) {
      hash = mix64(hash ^ static_cast<unsigned char>(c));
    }
    hash = mix64(hash + 1);
  }
  return hash;
}

std::vector<std::pair<std::string, std::uint64_t>> counts_of(const PsResult& result) {
  std::uint64_t slices = 0;
  for (const PsShardLog& shard : result.shards) {
    slices += shard.committed.size();
  }
  return {{"done", result.outcome == elastic::Outcome::kDone ? 1 : 0},
          {"stopped", result.outcome == elastic::Outcome::kStopped ? 1 : 0},
          {"torn", result.torn ? 1 : 0},
          {"views", result.views},
          {"slices applied", slices},
          {"leased again", result.reissued},
          {"late", result.late},
          {"shards taken over", result.takeovers},
          {"fallen back", result.rewind ? 1 : 0}};
}

}  // namespace

Outcome outcome_of(const Scenario& scenario, RunResult result) {
  return {scenario.seed,
          describe(scenario),
          replay_command(scenario.seed, "", name_of(scenario.sabotage)),
          std::move(result.violations),
          std::move(result.history),
          result.counts(),
          result.fingerprint};
}

Outcome outcome_of(const FailoverScenario& scenario, FailoverResult result) {
  const std::uint64_t fingerprint = fingerprint_of(result.history);
  return {scenario.seed,
          describe(scenario),
          replay_command(scenario.seed, " --world failover", name_of(scenario.broken)),
          std::move(result.violations),
          std::move(result.history),
          result.counts(),
          fingerprint};
}

Outcome outcome_of(const PsOptions& scenario, PsResult result) {
  std::vector<std::string> lines = result.history;
  for (const PsShardLog& shard : result.shards) {
    lines.push_back(std::to_string(shard.model));
  }
  return {scenario.seed,
          describe(scenario),
          replay_command(scenario.seed, " --world parameter-servers", to_text(scenario.sabotage)),
          violations(scenario, result),
          std::move(result.history),
          counts_of(result),
          fingerprint_of(lines)};
}

const World& membership_world() {
  static const MembershipWorld world;
  return world;
}

const World& failover_world() {
  static const CoordinatorsWorld world;
  return world;
}

const World& parameter_server_world() {
  static const ParameterServerWorld world;
  return world;
}

const std::vector<const World*>& all_worlds() {
  static const std::vector<const World*> all = {&membership_world(), &failover_world(),
                                                &parameter_server_world()};
  return all;
}

}  // namespace mayfly::sim
