#pragma once

// What goes wrong in one run. Chosen at two levels: first which kinds of trouble exist at all, then
// how often; so that runs explore combinations instead of a little of everything. Reading these
// structs is reading the fault model.

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "elastic/core/view.hpp"

namespace mayfly::sim {

inline constexpr int kSlowestFactor = 10;

/// Mean time between faults of one kind, over the whole job; zero = this kind does not exist.
struct FaultPlan {
  Duration crash_every{};     ///< SIGKILL: connections break, the sentinel tells at once or late
  Duration vanish_every{};    ///< a host drops off the network: only silence tells
  Duration freeze_every{};    ///< SIGSTOP for freeze_max at most, then it goes on as if nothing was
  Duration halt_every{};      ///< a machine stands still for freeze_max at most and answers nothing
  Duration starve_every{};    ///< a worker and its sentinel get no processor for freeze_max at most
  Duration bad_link_every{};  ///< two members cannot exchange data any more, both still reach us
  Duration join_every{};      ///< a new worker connects
  Duration drain_every{};     ///< an operator drains a member
  Duration notice_every{};    ///< a worker is asked to leave
  Duration pause_every{};     ///< an operator pauses the job for pause_max at most
  Duration speed_change_every{};  ///< a worker becomes slower or faster, up to kSlowestFactor
  Duration mass_loss_every{};     ///< a zone is taken away: any number of workers at once, or all
  Duration
      coordinator_stall_every{};  ///< the coordinator's host stands still for stall_max at most
  Duration repeat_every{};   ///< a message that a worker sent before reaches the coordinator again
  Duration corrupt_every{};  ///< a bit flips in what a worker holds
  Duration missed_sum_every{};  ///< a member dies when only an observer lacks the sum
  Duration fail_alone_every{};  ///< a trainer fails by itself; its process goes on
  Duration stop_after{};        ///< an operator stops the job then
  Duration fail_after{};        ///< the engine gives the job up then: a loss is not finite, ...
  /// What the members do together after the last step, at most; whoever is kept from it is not
  /// done.
  Duration end_takes{};
  bool drains_stragglers = false;  ///< who is far too slow is asked to leave
  bool restart_at_once = false;    ///< who is killed is replaced within milliseconds
  bool crash_on_view = false;      ///< whenever a view is published, somebody may crash right then
  bool slow_members = false;       ///< every worker has its own speed, up to kSlowestFactor slower
  /// The clock of each process is so much too fast or too slow at most.
  std::uint32_t clock_drift_per_mille = 0;

  Duration freeze_max = milliseconds(1200);
  Duration stall_max = milliseconds(800);
  Duration pause_max = milliseconds(400);
  Duration message_delay_max =
      milliseconds(2);  ///< of control messages; order per connection holds
  /// Delay of the messages of sentinels, which have connections of their own: such a message may
  /// overtake those of the worker, or arrive long after them.
  Duration sentinel_delay_max = milliseconds(2);
  Duration break_delay_max = milliseconds(5);  ///< until a member sees that its group broke
  Duration faults_end = seconds(4);            ///< no faults begin after this
};

/// Something the trainer or the network does wrong on purpose, which a checker must find.
enum class Sabotage {
  kNone,
  kKeepsStaleSums,         ///< a member that was behind counts its sums of the older step
  kWorksOnOldWeights,      ///< a member that is behind begins its share before it has the state
  kIgnoresFirstStep,       ///< some members do their usual range in a first step too
  kReducesTooEarly,        ///< a reduction completes without its last member
  kSkipsSync,              ///< a member that is behind does not take the state
  kLosesViews,             ///< announcements of views after the third do not arrive
  kSkipsAnObservedSum,     ///< an observer leaves out a step while it catches up
  kIgnoresDifferences,     ///< members commit although their states differ
  kStopsBeforeCancelling,  ///< a member says Stopped while its group still uses its buffers
  kForgetsToProbe,         ///< nobody asks the machines of silent members
  kBelievesCopies,         ///< an observer does not compare the state that came
};

/// How the members of a group exchange their sums; see collectives/tcp/exchange.hpp.
enum class ExchangeKind { kRing, kDoubling, kOneShot, kTwoShot };

struct Scenario {
  std::uint64_t seed = 0;
  std::uint32_t initial_workers = 4;
  std::uint32_t view_max = elastic::kMembersMax;  ///< further workers are spares
  std::uint32_t min_workers = 1;
  std::uint32_t delta_from_members = 32;  ///< members are told what changes in views of so many
  std::uint32_t microbatches = 8;
  std::uint32_t microbatch_size = 2;
  std::uint64_t samples = 50;  ///< of the data set
  ExchangeKind exchange = ExchangeKind::kRing;
  std::size_t buckets = 1;  ///< all-reduces per step
  std::uint64_t steps = 60;
  std::uint64_t state_bytes = 0;  ///< a joiner observes if it is more than zero
  Duration microbatch_time = milliseconds(5);
  FaultPlan faults;
  Sabotage sabotage = Sabotage::kNone;
};

/// All of them but kNone.
[[nodiscard]] const std::vector<Sabotage>& all_sabotages();
/// "keeps-stale-sums".
[[nodiscard]] const char* name_of(Sabotage sabotage);

/// Everything about the run with this seed.
[[nodiscard]] Scenario draw_scenario(std::uint64_t seed);
/// Without the trouble that was added last: as it was when older seeds found something.
[[nodiscard]] Scenario draw_first_scenario(std::uint64_t seed);
/// " NAME=MILLISECONDS" for such a line, or nothing if there is no such time.
[[nodiscard]] std::string ms(const char* name, Duration time);
/// One line for people.
[[nodiscard]] std::string describe(const Scenario& scenario);

}  // namespace mayfly::sim
