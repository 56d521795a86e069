#pragma once

// A user who does not look.

#include "engine/launch/launch.hpp"

namespace mayfly::test_support {

class NobodyListens final : public engine::RunListener {
 public:
  void on_step(const engine::StepRecord& /*metric*/, std::uint64_t /*total_steps*/) override {}
  void on_event(const std::string& /*line*/) override {}
  void on_summary(const engine::Summary& /*summary*/) override {}
};

}  // namespace mayfly::test_support
