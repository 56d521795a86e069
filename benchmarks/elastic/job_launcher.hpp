#pragma once

// A local job under measurement: its coordinator is in this process, its workers are the program
// `mayfly`.

#include <string>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "engine/launch/local_launcher.hpp"

namespace mayfly::bench {

class JobLauncher final : public engine::LocalLauncher {
 public:
  JobLauncher(const engine::JobConfig& job, engine::RunListener& listener,
              std::vector<engine::ChaosEvent> chaos, PollHook on_poll)
      : LocalLauncher(job, listener, std::move(chaos), std::move(on_poll)) {
    use_program(find_beside_program("mayfly"));
  }
};

}  // namespace mayfly::bench
