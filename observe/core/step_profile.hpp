#pragma once

// What the time of steps was spent on, and which members the others waited for, from the records of
// steps (`before`: engine/run/records.hpp, StepTimes). Pure; one thread at a time.

#include <array>
#include <boost/json/fwd.hpp>
#include <cstdint>
#include <map>
#include <string>

namespace mayfly::observe {

/// The kinds of a step's time; they add up to it.
inline constexpr std::size_t kStepParts = 5;
/// Of these consists the time until the slowest member is ready for the exchange.
inline constexpr std::size_t kReadyParts = 3;
inline constexpr std::array<const char*, kStepParts> kStepPartNames = {"compute", "fetch", "prep",
                                                                       "exchange", "update"};
using StepSeconds = std::array<double, kStepParts>;

class StepProfile {
 public:
  struct Slowest {
    std::uint64_t steps = 0;  ///< in which this member was ready last
    StepSeconds seconds{};    ///< of those steps

    /// Seconds until it was ready for the exchange.
    [[nodiscard]] double until_ready() const;
  };
  struct HeldUp {
    std::uint64_t steps = 0;  ///< in which this member waited least in the exchange
    double seconds = 0;       ///< so much longer than it the others waited in those exchanges
  };

  /// A line of metrics.jsonl; one without times is left out.
  void add(const boost::json::object& record);

  /// Steps whose times are known.
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  /// Of all these steps together.
  [[nodiscard]] const StepSeconds& seconds() const { return seconds_; }
  [[nodiscard]] double total() const;
  /// By member.
  [[nodiscard]] const std::map<std::uint64_t, Slowest>& slowest() const { return slowest_; }
  [[nodiscard]] const std::map<std::uint64_t, HeldUp>& held_up() const { return held_up_; }

 private:
  std::uint64_t steps_ = 0;
  StepSeconds seconds_{};
  std::map<std::uint64_t, Slowest> slowest_;
  std::map<std::uint64_t, HeldUp> held_up_;
};

}  // namespace mayfly::observe
