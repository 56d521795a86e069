#pragma once

// The fault model of the simulator: the faults of one run. A seed first selects the kinds of faults
// that occur at all, then their frequencies. So different runs test different combinations instead
// of a few faults of every kind.

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "elastic/core/view.hpp"

namespace mayfly::sim {

inline constexpr int kSlowestFactor = 10;

/// Mean time between faults of one kind, over the whole job; zero = this kind does not exist.
struct FaultPlan {
  Duration crash_every{};     ///< SIGKILL: connections break, the sentinel reports it, perhaps late
  Duration vanish_every{};    ///< a host loses its network, which only its silence shows
  Duration freeze_every{};    ///< SIGSTOP for at most freeze_max; then the process continues
  Duration halt_every{};      ///< a machine is suspended for at most freeze_max and answers nothing
  Duration starve_every{};    ///< a worker and its sentinel do not run for at most freeze_max
  Duration bad_link_every{};  ///< two members lose their link, but both reach the coordinator
  Duration join_every{};      ///< a new worker connects
  Duration drain_every{};     ///< an operator drains a member
  Duration notice_every{};    ///< a worker is asked to leave
  Duration pause_every{};     ///< an operator pauses the job for pause_max at most
  Duration speed_change_every{};  ///< a worker becomes slower or faster, up to kSlowestFactor
  Duration mass_loss_every{};     ///< many or all workers are lost at once, as with their zone
  /// The coordinator's host is suspended for at most stall_max.
  Duration coordinator_stall_every{};
  Duration repeat_every{};      ///< an earlier message of a worker reaches the coordinator again
  Duration corrupt_every{};     ///< a bit of a worker's state or result flips
  Duration missed_sum_every{};  ///< a member dies when only an observer lacks the sum
  Duration fail_alone_every{};  ///< a trainer fails and blames no member; its process continues
  Duration stop_after{};        ///< when an operator stops the job
  Duration fail_after{};        ///< when the engine ends the job as failed, as for an infinite loss
  /// The longest time of the work that all members do after the last step. A member that is
  /// interrupted during it has not finished.
  Duration end_takes{};
  bool drains_stragglers = false;  ///< workers that are far too slow are asked to leave
  bool restart_at_once = false;    ///< killed workers are replaced within milliseconds
  bool crash_on_view = false;      ///< workers may crash just when a view is published
  bool slow_members = false;       ///< every worker has its own speed, up to kSlowestFactor slower
  /// The clock of each process runs too fast or too slow by at most this much.
  std::uint32_t clock_drift_per_mille = 0;

  Duration freeze_max = milliseconds(1200);
  Duration stall_max = milliseconds(800);
  Duration pause_max = milliseconds(400);
  Duration message_delay_max =
      milliseconds(2);  ///< of control messages; order per connection holds
  /// Delay of the messages of sentinels. They have separate connections, so such a message may
  /// overtake messages of the worker, or arrive long after them.
  Duration sentinel_delay_max = milliseconds(2);
  Duration break_delay_max = milliseconds(5);  ///< until a member notices that its group broke
  Duration faults_end = seconds(4);            ///< no faults begin after this
};

/// A defect of the trainer or the network that is planted in a run, and that a checker must detect.
enum class Sabotage {
  kNone,
  kKeepsStaleSums,         ///< a member that was behind counts its sums of the older step
  kWorksOnOldWeights,      ///< a member that is behind begins its share before it has the state
  kIgnoresFirstStep,       ///< some members compute their usual range in a view's first step, too
  kReducesTooEarly,        ///< a reduction completes without its last member
  kSkipsSync,              ///< a member that is behind does not use the state that it receives
  kLosesViews,             ///< announcements of views after the third do not arrive
  kSkipsAnObservedSum,     ///< an observer leaves out a step while it catches up
  kIgnoresDifferences,     ///< members commit although their states differ
  kStopsBeforeCancelling,  ///< a member sends Stopped while its group still uses its buffers
  kForgetsToProbe,         ///< the machines of silent members are not probed
  kBelievesCopies,         ///< an observer does not check the state that it has received
};

/// How the members of a group exchange their sums; see collectives/tcp/exchange.hpp.
enum class ExchangeKind { kRing, kDoubling, kOneShot, kTwoShot };

struct Scenario {
  std::uint64_t seed = 0;
  std::uint32_t initial_workers = 4;
  std::uint32_t view_max = elastic::kMembersMax;  ///< further workers are spares
  std::uint32_t min_workers = 1;
  std::uint32_t delta_from_members = 32;  ///< views of so many members are announced as deltas
  std::uint32_t microbatches = 8;
  std::uint32_t microbatch_size = 2;
  std::uint64_t samples = 50;  ///< in the data set
  ExchangeKind exchange = ExchangeKind::kRing;
  std::size_t buckets = 1;  ///< all-reduces per step
  std::uint64_t steps = 60;
  std::uint64_t state_bytes = 0;  ///< joining workers observe first if this is more than zero
  Duration microbatch_time = milliseconds(5);
  FaultPlan faults;
  Sabotage sabotage = Sabotage::kNone;
};

/// All defects, without kNone.
[[nodiscard]] const std::vector<Sabotage>& all_sabotages();
/// The defect's name, such as "keeps-stale-sums".
[[nodiscard]] const char* name_of(Sabotage sabotage);

/// The scenario of this seed.
[[nodiscard]] Scenario draw_scenario(std::uint64_t seed);
/// The same without the kinds of faults that were added later, for older seeds that found defects.
[[nodiscard]] Scenario draw_first_scenario(std::uint64_t seed);
/// " NAME=MILLISECONDS" for the line of describe(), or "" if `time` is zero.
[[nodiscard]] std::string ms(const char* name, Duration time);
/// One readable line.
[[nodiscard]] std::string describe(const Scenario& scenario);

}  // namespace mayfly::sim
