#pragma once

// Whether the job waits, pauses or ends. That depends on the number of workers that it needs, on
// requests of operators, on the steps of its members, and on whether an earlier coordinator had
// ended it. Pure; one thread.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/time.hpp"
#include "elastic/core/coordinator_options.hpp"
#include "elastic/core/membership.hpp"
#include "elastic/core/messages.hpp"
#include "elastic/core/view_log.hpp"

namespace mayfly::elastic {

/// The least number of workers of a view: initial_workers for the first one, with initial_servers
/// among them, and min_workers for all later ones.
class WorkerQuota {
 public:
  explicit WorkerQuota(const CoordinatorOptions& options);

  /// What the next view lacks; nothing if it has enough workers.
  [[nodiscard]] std::optional<std::string> lack(const Membership& membership, Instant now) const;
  /// The job waits from now on, unless it waits already or no worker is ready for its first view.
  void wait(const Membership& membership, Instant now);
  void met() { since_.reset(); }
  /// The job has waited for min_workers_timeout.
  [[nodiscard]] bool is_hopeless(Instant now) const { return since_ && now - *since_ >= timeout_; }
  /// Why it ends then.
  [[nodiscard]] std::string reason_to_end(const Membership& membership) const;
  /// This process was itself suspended for `pause` and could not receive anything: waits longer.
  void extend_deadlines(Duration pause, Instant now);

 private:
  [[nodiscard]] std::size_t ready_servers(const Membership& membership) const;

  std::uint32_t least_;  // minimum as configured, which may be 0
  std::uint32_t initial_;
  std::uint32_t initial_servers_;
  std::function<bool(const std::string& address)> counts_as_server_;
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

  /// Continues the job of this log.
  void restore(const LogContents& contents);

  /// A request to pause or resume; true if it changes anything.
  [[nodiscard]] bool request_pause(bool pause);
  /// A request to stop; the first reason counts.
  void request_stop(const std::string& reason);
  [[nodiscard]] bool is_pause_requested() const { return pause_requested_; }
  [[nodiscard]] bool is_stop_requested() const { return stop_requested_.has_value(); }
  /// The job is to pause or stop, so stopping members are not expected to compute in the next view.
  [[nodiscard]] bool is_requested() const { return pause_requested_ || stop_requested_; }
  /// The job is to be stopped, but some members have committed its last step: in one more view the
  /// other members receive that state, and the job is done.
  [[nodiscard]] bool is_finishing() const { return is_finishing_; }
  /// To be called when every living member of the view has stopped: how the job ends, or nothing if
  /// it continues. `can_go_on`: there are enough members for another view.
  [[nodiscard]] std::optional<Ending> decide(const Membership& membership, bool can_go_on);

  /// An earlier coordinator had ended the job, but may not have told every member.
  [[nodiscard]] bool has_ended_before() const { return before_.has_value(); }
  /// The end that those members are told.
  [[nodiscard]] Ending once_more(const Membership& membership) const;

 private:
  bool pause_requested_ = false;
  std::optional<std::string> stop_requested_;
  bool is_finishing_ = false;
  std::optional<log_record::JobEnded> before_;
};

/// The candidate for the next view with the highest committed step, which writes the last
/// checkpoint: the first of several; nothing if there is none. Once the job has committed a step,
/// candidates without a committed step do not count, because their initial weights would be taken
/// for the job's newest state. With parameter servers it is the first worker of the last view,
/// which gets the state from them.
[[nodiscard]] std::optional<MemberId> holder_of_newest_state(const Membership& membership);

/// The reason in the Dismiss that members get at the end of the job.
[[nodiscard]] DismissReason reason_of(Outcome outcome);

}  // namespace mayfly::elastic
