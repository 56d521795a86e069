#include "planner/search/amounts.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/time.hpp"

namespace mayfly::planner {

TimeUnit time_unit_for(double length_s) {
  constexpr double kMinutesFrom_s = 100;
  const double size_s = std::abs(length_s);
  if (size_s >= kSecondsPerHour) {
    return {};
  }
  return size_s >= kMinutesFrom_s ? TimeUnit{"minutes", "min", 60} : TimeUnit{"seconds", "s", 1};
}

std::string time_in(const TimeUnit& unit, double length_s) {
  return fmt::format("{:.2f}", length_s / unit.length_s);
}

std::string time_words(double length_s) {
  const TimeUnit unit = time_unit_for(length_s);
  return time_in(unit, length_s) + " " + unit.symbol;
}

std::string money_words(double amount) {
  const double size = std::abs(amount);
  if (size >= 1 || size == 0) {
    return fmt::format("{:.2f}", amount);
  }
  constexpr int kDigits = 3;
  const int decimals = kDigits - 1 - static_cast<int>(std::floor(std::log10(size)));
  return fmt::format("{:.{}f}", amount, decimals);
}

std::string effect_words(double saved_s, double more_money) {
  return fmt::format("{} {}{} and costs {} {}", saved_s < 0 ? "takes" : "saves",
                     time_words(std::abs(saved_s)), saved_s < 0 ? " more" : "",
                     money_words(std::abs(more_money)), more_money < 0 ? "less" : "more");
}

}  // namespace mayfly::planner
