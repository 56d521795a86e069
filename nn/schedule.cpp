#include "nn/optimizer.hpp"

namespace mayfly::nn {
namespace {

// The cosine is computed once per step on every member and must have the same bits everywhere,
// which libm does not guarantee across versions. So it is computed here, with arithmetic that IEEE
// 754 specifies exactly. sin(x) for |x| <= pi/2 by its Taylor series: the first term left out is
// below 6e-17.
double sine(double x) {
  const double square = x * x;
  double term = x;
  double sum = x;
  for (int n = 3; n <= 21; n += 2) {
    term = -term * square / (static_cast<double>(n - 1) * static_cast<double>(n));
    sum += term;
  }
  return sum;
}

// (1 + cos(pi t)) / 2 for t in [0, 1). As cos(pi t) = sin(pi/2 - pi t) it is exactly 1 at t = 0
// only if the sine is exactly 1 there, so that end is stated instead of computed.
double cosine_decay(double t) {
  constexpr double kPi = 3.14159265358979323846;
  return t <= 0.0 ? 1.0 : 0.5 * (1.0 + sine(kPi * (0.5 - t)));
}

double step_decay(const Schedule& schedule, std::uint64_t step) {
  double factor = 1.0;
  for (const double fraction : schedule.step_at) {
    if (static_cast<double>(step) > fraction * static_cast<double>(schedule.total_steps)) {
      factor *= schedule.step_factor;
    }
  }
  return factor;
}

}  // namespace

double learning_rate_at(const Schedule& schedule, std::uint64_t step) {
  if (step <= schedule.warmup_steps) {
    return schedule.base * static_cast<double>(step) / static_cast<double>(schedule.warmup_steps);
  }
  switch (schedule.kind) {
    case ScheduleKind::kConstant: return schedule.base;
    case ScheduleKind::kStep: return schedule.base * step_decay(schedule, step);
    case ScheduleKind::kCosine: break;
  }
  if (step > schedule.total_steps) {
    return 0.0;
  }
  const auto done = static_cast<double>(step - 1 - schedule.warmup_steps);
  const auto span = static_cast<double>(schedule.total_steps - schedule.warmup_steps);
  return schedule.base * cosine_decay(done / span);
}

Result<ScheduleKind> parse_schedule_kind(const std::string& text) {
  if (text == "constant") {
    return ScheduleKind::kConstant;
  }
  if (text == "cosine") {
    return ScheduleKind::kCosine;
  }
  if (text == "step") {
    return ScheduleKind::kStep;
  }
  return Error{Errc::kInvalidInput,
               "unknown learning-rate schedule '" + text + "'; known: constant, cosine, step"};
}

}  // namespace mayfly::nn
