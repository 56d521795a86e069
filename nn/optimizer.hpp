#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace mayfly::nn {

/// Stochastic gradient descent with momentum, as torch.optim.SGD (dampening 0, no Nesterov):
///   v = momentum * v + (g + weight_decay * w);  w = w - learning_rate * v
struct SgdOptions {
  float momentum = 0.9F;
  float weight_decay = 1e-4F;
};

/// Updates all elements in place, each in the order of operations above with fused multiply-adds.
/// The bits are the same however the array is divided among calls, and on every instruction set.
void sgd_update(const SgdOptions& options, float learning_rate, std::span<const float> gradient,
                std::span<float> parameters, std::span<float> momentum);

/// Running statistics: r = (1 - rate) * r + rate * batch, PyTorch's rate being 0.1.
void update_running_statistics(float rate, std::span<const float> batch, std::span<float> running);

enum class ScheduleKind { kConstant, kCosine, kStep };

/// Learning rate as a pure function of the step. Warm-up rises linearly over `warmup_steps` (step
/// k, from 1, has base * k / warmup_steps). After it kCosine falls from the base along half a
/// cosine that would be 0 after `total_steps`, as CosineAnnealingLR of PyTorch does, so that the
/// last step still has a rate; kStep multiplies by `step_factor` at each of the given fractions of
/// total_steps.
struct Schedule {
  ScheduleKind kind = ScheduleKind::kCosine;
  double base = 0.1;
  std::uint64_t warmup_steps = 0;
  std::uint64_t total_steps = 1;
  double step_factor = 0.1;
  std::vector<double> step_at = {0.5, 0.75};
};

/// The rate for step `step` (1 is the first).
[[nodiscard]] double learning_rate_at(const Schedule& schedule, std::uint64_t step);

/// "constant", "cosine" or "step"; anything else is kInvalidInput.
[[nodiscard]] Result<ScheduleKind> parse_schedule_kind(const std::string& text);

}  // namespace mayfly::nn
