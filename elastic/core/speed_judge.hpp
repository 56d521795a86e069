#pragma once

// Reactions to speeds that change while a view runs: microbatches are redistributed at a boundary,
// and a member that is far too slow may be asked to leave. Both are planned changes; nothing is
// computed twice. Pure; one thread.

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

/// A new assignment and its predicted effect.
struct Rebalance {
  float before_ms = 0;                ///< compute time of the slowest member in a step, at present
  float after_ms = 0;                 ///< the same with `counts`
  std::vector<std::uint32_t> counts;  ///< microbatches per step, by rank
};

/// Decides when to redistribute the microbatches although no member joined or left. Every change
/// stops the view for a moment, so a gain must be predicted for a while before it, and changes that
/// follow each other quickly become rarer.
class Rebalancer {
 public:
  explicit Rebalancer(RebalanceOptions options) : options_(options) {}

  /// A view was published, for whatever reason: predictions begin anew.
  void view_began() { seen_since_.reset(); }
  /// The last rebalance took this time, from the boundary until all members continued.
  void change_took(Duration cost) { cost_ = cost; }
  /// Nothing was judged for so long: the time does not count.
  void skip(Duration time);
  /// To be called every few milliseconds while a view runs undisturbed. Returns the change to make
  /// now, and assumes that it is made; nothing while the speed of any member is unknown.
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

/// Decides whether a member has been so slow, for so long, that the job is faster without it. Off
/// by default: to give a slow member less work is enough as long as a single microbatch of it does
/// not delay the others.
class StragglerPolicy {
 public:
  explicit StragglerPolicy(StragglerOptions options) : options_(options) {}

  /// To be called every few milliseconds while a view runs. Returns the slowest of the members that
  /// have been too slow for long enough; it should leave now. Returns it again until drained() is
  /// called.
  [[nodiscard]] std::optional<MemberId> judge(Instant now, const std::vector<Runner>& runners);
  /// Nothing was judged for so long: the time does not count.
  void skip(Duration time);
  /// The member was asked to leave. The next member of its host is allowed twice the time, so that
  /// a worker that returns as slow as before is not sent away again and again.
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
  /// At most one of the two, because the change for a straggler redistributes the microbatches,
  /// too.
  struct Verdict {
    std::optional<Straggler> straggler;    ///< to be asked to leave; counts as drained from now on
    std::optional<std::string> rebalance;  ///< a readable text; counts as carried out from now on
  };
  /// To be called every few milliseconds while a view runs undisturbed. Time in which it is not
  /// called (a pause of the job, a change of view, a suspended coordinator) does not count as time
  /// in which a member is slow.
  [[nodiscard]] Verdict judge(Instant now, const Membership& membership);
  /// A view was published, for whatever reason: predictions begin anew.
  void view_began() { rebalancer_.view_began(); }
  /// The last rebalance took this time, from the boundary until all members continued.
  void change_took(Duration cost) { rebalancer_.change_took(cost); }

 private:
  [[nodiscard]] std::optional<Straggler> find_straggler(Instant now,
                                                        const std::vector<Runner>& runners,
                                                        const Membership& membership);

  Duration speed_sample_;
  std::size_t workers_min_;
  Rebalancer rebalancer_;
  StragglerPolicy stragglers_;
  std::optional<Instant> judged_at_;
};

}  // namespace mayfly::elastic
