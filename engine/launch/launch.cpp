#include "engine/launch/launch.hpp"

#include "engine/faults/chaos_plan.hpp"
#include "engine/launch/local_launcher.hpp"
#include "engine/launch/program_command.hpp"
#include "engine/membership/exit_codes.hpp"

namespace mayfly::engine {

int run_program(const JobConfig& config, const std::vector<std::string>& command,
                RunListener& listener) {
  if (const Result<void> checked = check_program(command); !checked.ok()) {
    return refuse(checked.error(), kExitUsage);
  }
  Result<std::vector<ChaosEvent>> chaos = parse_chaos_plan(config.chaos);
  if (!chaos.ok()) {
    return refuse(chaos.error(), kExitUsage);
  }
  for (const ChaosEvent& event : chaos.value()) {
    if (is_of_worker(event.kind)) {
      return refuse({Errc::kInvalidInput,
                     "--chaos: programs of your own can be killed, stopped, "
                     "drained and joined, but not hung or falsified"},
                    kExitUsage);
    }
  }
  LocalLauncher launcher(config, listener, std::move(chaos).value());
  launcher.use_command(command);
  return launcher.run();
}

int run_train(const JobConfig& config, RunListener& listener) {
  Result<std::vector<ChaosEvent>> chaos = parse_chaos_plan(config.chaos);
  if (!chaos.ok()) {
    return refuse(chaos.error(), kExitUsage);
  }
  LocalLauncher launcher(config, listener, std::move(chaos).value());
  return launcher.run();
}

}  // namespace mayfly::engine
