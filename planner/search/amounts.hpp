#pragma once

// The notation of times and money in plans, in which amounts of a short job are not "0.00 h". Any
// thread.

#include <string>

namespace mayfly::planner {

struct TimeUnit {
  const char* name = "hours";  ///< for a heading
  const char* symbol = "h";
  double length_s = 3600;
};

/// Hours from one hour on, minutes from 100 s on, seconds below.
[[nodiscard]] TimeUnit time_unit_for(double length_s);
/// "2.50" in that unit.
[[nodiscard]] std::string time_in(const TimeUnit& unit, double length_s);
/// "2.50 h", "12.30 min", "45.00 s".
[[nodiscard]] std::string time_words(double length_s);
/// "12.34"; below 1 with three significant digits: "0.0855".
[[nodiscard]] std::string money_words(double amount);
/// The effect of a change: "saves 2.50 h and costs 0.25 more", "takes 18.69 s more and costs 0.25
/// less".
[[nodiscard]] std::string effect_words(double saved_s, double more_money);

}  // namespace mayfly::planner
