#pragma once

// Speeds that change while a view runs: microbatches are distributed anew at a boundary, and a
// member that is far too slow may be asked to leave. Both are planned changes; nothing is computed
// twice. Pure.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/time.hpp"
#include "elastic/core/coordinator_options.hpp"
#include "elastic/core/membership.hpp"

namespace mayfly::elastic {

/// One member's part of a step, by rank.
struct Load {
  float microbatch_ms = 0;  ///< measured; 0 = unknown
  std::uint32_t count = 0;  ///< microbatches per step
};

/// What a new assignment would bring.
struct Rebalance {
  float before_ms = 0;  ///< compute time of the slowest member in a step, as it is
  float after_ms = 0;   ///< as it would be
  std::vector<std::uint32_t> counts;
};

/// When to distribute the microbatches anew although no member came or went. Every change stops the
/// view for a moment, so it must promise a gain, the promise must hold for a while, and changes
/// that do not help become rarer.
class Rebalancer {
 public:
  explicit Rebalancer(RebalanceOptions options) : options_(options) {}

  /// A view was published, for whatever reason: a gain has to be seen anew.
  void view_began() { seen_since_.reset(); }
  /// From the boundary until all members went on, the last rebalance took so long.
  void change_took(Duration cost) { cost_ = cost; }
  /// To be asked every few milliseconds while a view runs undisturbed. The answer is what to change
  /// now; it counts as changed. Nothing while the time of any member is unknown.
  [[nodiscard]] std::optional<Rebalance> judge(Instant now, const std::vector<Load>& loads);

 private:
  [[nodiscard]] std::optional<Rebalance> worthwhile(const std::vector<Load>& loads) const;
  void changed(Instant now);

  RebalanceOptions options_;
  Duration cost_{};
  Duration interval_{};
  std::optional<Instant> seen_since_;
  std::optional<Instant> changed_at_;
};

/// A member of the present view.
struct Runner {
  MemberId member{};
  std::string host;
  float microbatch_ms = 0;  ///< measured; 0 = unknown
};

/// Whether a member is so slow, for so long, that the job is better off without it. Off unless
/// asked for: giving a slow member less work is enough as long as one microbatch of its own does
/// not hold up everybody.
class StragglerPolicy {
 public:
  explicit StragglerPolicy(StragglerOptions options) : options_(options) {}

  /// To be asked every few milliseconds while a view runs. Returns who should leave now: of those
  /// that have been too slow for long enough the slowest. Asking again names it again, until
  /// drained() says that it goes.
  [[nodiscard]] std::optional<MemberId> judge(Instant now, const std::vector<Runner>& runners);
  /// It goes. The next member of its host is given twice the time: one that comes back as slow as
  /// before must not be sent away again and again.
  void drained(const Runner& runner);

 private:
  [[nodiscard]] Duration patience(const std::string& host) const;

  StragglerOptions options_;
  std::map<MemberId, Instant> slow_since_;
  std::map<std::string, int> drained_of_host_;
};

class SpeedJudge {
 public:
  explicit SpeedJudge(const CoordinatorOptions& options);

  struct Straggler {
    MemberId member{};
    std::string reason;
  };
  /// At most one of the two: the change that follows a straggler shares out anew.
  struct Verdict {
    std::optional<Straggler> straggler;    ///< asked to leave; counts as gone from now on
    std::optional<std::string> rebalance;  ///< what a new view would bring; counts as made
  };
  /// To be asked every few milliseconds while a view runs undisturbed.
  [[nodiscard]] Verdict judge(Instant now, const Membership& membership);
  /// A view was published, for whatever reason: a gain has to be seen anew.
  void view_began() { rebalancer_.view_began(); }
  /// From the boundary until all members went on, the last rebalance took so long.
  void change_took(Duration cost) { rebalancer_.change_took(cost); }

 private:
  [[nodiscard]] std::optional<Straggler> find_straggler(Instant now,
                                                        const std::vector<Runner>& runners,
                                                        const Membership& membership);

  Duration speed_sample_;
  std::size_t workers_min_;
  Rebalancer rebalancer_;
  StragglerPolicy stragglers_;
  Instant next_judgement_{};
};

}  // namespace mayfly::elastic
