#pragma once

// Whether the job waits, pauses or ends: how many workers it needs, what was asked for, what its
// members have done, and what the coordinator before left. Pure.

#include <cstdint>
#include <optional>
#include <string>

#include "base/time.hpp"
#include "elastic/core/coordinator_options.hpp"
#include "elastic/core/membership.hpp"
#include "elastic/core/messages.hpp"
#include "elastic/core/view_log.hpp"

namespace mayfly::elastic {

/// A view needs so many workers; the first one waits for all that the job is to begin with.
class WorkerQuota {
 public:
  explicit WorkerQuota(const CoordinatorOptions& options);

  /// What the next view lacks, if it lacks members.
  [[nodiscard]] std::optional<std::string> lack(const Membership& membership, Instant now) const;
  /// The job waits, unless nobody has come yet. Once it waits it goes on.
  void wait(const Membership& membership, Instant now);
  void met() { since_.reset(); }
  /// It has waited for as long as it may.
  [[nodiscard]] bool is_hopeless(Instant now) const { return since_ && now - *since_ >= timeout_; }
  /// Why it ends then.
  [[nodiscard]] std::string reason_to_end(const Membership& membership) const;
  /// While we stood still ourselves nobody could be heard.
  void excuse(Duration pause, Instant now);

 private:
  std::uint32_t least_;  // as configured, also 0
  std::uint32_t initial_;
  Duration timeout_;
  bool counts_some_only_;  // not every member is a worker

  std::optional<Instant> since_;
};

class JobEnd {
 public:
  struct Ending {
    Outcome outcome = Outcome::kDone;
    std::string detail;
    bool with_checkpoint = false;  ///< the member with the newest state writes a last one
  };

  /// Goes on with the job of this log.
  void restore(const LogContents& contents);

  /// True if that is news.
  [[nodiscard]] bool ask_pause(bool pause);
  /// The first reason counts.
  void ask_stop(const std::string& reason);
  [[nodiscard]] bool is_pause_asked() const { return pause_asked_; }
  [[nodiscard]] bool is_stop_asked() const { return stop_asked_.has_value(); }
  /// A member that is told to stop is not expected to work in the next view.
  [[nodiscard]] bool is_asked() const { return pause_asked_ || stop_asked_; }
  /// It is to be stopped, but some have done its last step: the others can have it in one more
  /// view, and nothing is left to resume.
  [[nodiscard]] bool is_finishing() const { return is_finishing_; }
  /// Every living member of the view has stopped: how the job ends, if it does. `can_go_on`: there
  /// are enough members for another view.
  [[nodiscard]] std::optional<Ending> decide(const Membership& membership, bool can_go_on);

  /// The coordinator before had ended the job, but not told everybody.
  [[nodiscard]] bool has_ended_before() const { return before_.has_value(); }
  /// How it is ended once more.
  [[nodiscard]] Ending once_more(const Membership& membership) const;

 private:
  bool pause_asked_ = false;
  std::optional<std::string> stop_asked_;
  bool is_finishing_ = false;
  std::optional<log_record::JobEnded> before_;
};

/// Of the candidates for a next view, of which there may be none; the first of several with the
/// same step. It writes the last checkpoint.
[[nodiscard]] std::optional<MemberId> holder_of_newest_state(const Membership& membership);

/// What a member is told at the end.
[[nodiscard]] DismissReason reason_of(Outcome outcome);

}  // namespace mayfly::elastic
