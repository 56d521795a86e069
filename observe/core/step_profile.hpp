#pragma once

// How the time of steps divides, and for which members the others waited, from the records of steps
// (`before`: engine/run/records.hpp, StepTimes). Pure; one thread at a time.

#include <array>
#include <boost/json/fwd.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mayfly::observe {

/// The kinds of a step's time; they add up to it.
inline constexpr std::size_t kStepParts = 5;
/// The first three make up the time until the slowest member is ready for the exchange.
inline constexpr std::size_t kReadyParts = 3;
inline constexpr std::array<const char*, kStepParts> kStepPartNames = {"compute", "fetch", "prep",
                                                                       "exchange", "update"};
using StepSeconds = std::array<double, kStepParts>;

class StepProfile {
 public:
  struct Slowest {
    std::uint64_t steps = 0;  ///< steps in which this member was ready last
    StepSeconds seconds{};    ///< in those steps

    /// Seconds until it was ready for the exchange.
    [[nodiscard]] double until_ready() const;
  };
  struct HeldUp {
    std::uint64_t steps = 0;  ///< steps in which this member waited least in the exchange
    double seconds = 0;       ///< by which the others waited longer in those exchanges
  };

  /// Successive steps. Stretches are so long that a run has at most kStretchesMax of them.
  struct Stretch {
    std::uint64_t first = 0;  ///< step
    std::uint64_t last = 0;
    std::uint64_t steps = 0;  ///< with times, including undone ones after `last`
    StepSeconds seconds{};    ///< of these steps
    std::map<std::uint64_t, std::uint64_t> ready_last;  ///< steps by the member that was ready last

    /// The member that was ready last in most of these steps.
    [[nodiscard]] std::uint64_t slowest() const;
  };
  static constexpr std::size_t kStretchesMax = 160;

  /// Adds a line of metrics.jsonl; one without times is skipped. Earlier lines of this step and of
  /// later ones are undone: the stretches lose these steps. If the line `is_late`, it is a missing
  /// step among them, and none is undone.
  void add(const boost::json::object& record, bool is_late = false);

  /// The job is started again in its directory. The functions below, except stretches(), count only
  /// the steps from here on, because ids may belong to other members now.
  void begin_part();

  /// Steps whose times are known.
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  /// The seconds of all these steps together.
  [[nodiscard]] const StepSeconds& seconds() const { return seconds_; }
  [[nodiscard]] double total() const;
  /// By member.
  [[nodiscard]] const std::map<std::uint64_t, Slowest>& slowest() const { return slowest_; }
  [[nodiscard]] const std::map<std::uint64_t, HeldUp>& held_up() const { return held_up_; }
  /// In the order of steps, without overlaps.
  [[nodiscard]] const std::vector<Stretch>& stretches() const { return stretches_; }

 private:
  Stretch& stretch_for(std::uint64_t step);
  Stretch& stretch_around(std::uint64_t step);

  std::uint64_t steps_ = 0;
  StepSeconds seconds_{};
  std::map<std::uint64_t, Slowest> slowest_;
  std::map<std::uint64_t, HeldUp> held_up_;
  std::vector<Stretch> stretches_;
  std::uint64_t steps_of_stretch_ = 1;
};

}  // namespace mayfly::observe
