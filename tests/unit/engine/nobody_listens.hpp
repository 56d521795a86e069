#pragma once

#include <string>
#include <vector>

#include "engine/run/run_listener.hpp"

namespace mayfly::test_support {

/// A listener that ignores all events.
class NobodyListens : public engine::RunListener {
 public:
  void on_step(const engine::StepRecord& /*metric*/, std::uint64_t /*total_steps*/) override {}
  void on_event(const std::string& /*line*/) override {}
  void on_summary(const engine::Summary& /*summary*/) override {}
};

class KeepsLines final : public NobodyListens {
 public:
  void on_event(const std::string& line) override { lines.push_back(line); }

  std::vector<std::string> lines;
};

}  // namespace mayfly::test_support
