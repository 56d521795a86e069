#pragma once

// Which job a coordinator leads, and in which incarnation: the ids that it hands out, what it says
// of itself to members, and whom it may count as its own. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "elastic/core/coordinator_events.hpp"
#include "elastic/core/coordinator_options.hpp"
#include "elastic/core/messages.hpp"
#include "elastic/core/view.hpp"
#include "elastic/core/view_log.hpp"

namespace mayfly::elastic {

/// What must be equal on all workers of a job, as (name, text). A text that the coordinator's
/// settings leave empty is open: the first worker that has one binds those after it.
class JobFingerprint {
 public:
  using Texts = std::vector<std::pair<std::string, std::string>>;

  /// `asked`: of the job before any worker; empty: whatever the first one says, and on no record.
  explicit JobFingerprint(Texts asked) : asked_(std::move(asked)), agreed_(asked_) {}

  /// What the job has now.
  [[nodiscard]] const Texts& agreed() const { return agreed_; }
  /// The first difference of this worker from the job, for people.
  [[nodiscard]] std::optional<std::string> difference(const Texts& worker) const;
  /// What was open is what this worker says. It must not differ.
  void settle(const Texts& worker);
  /// All workers are gone, and have done nothing: they bind nobody any more.
  void forget_workers() { agreed_ = asked_; }
  /// As a log has it.
  void restore(const Texts& logged) { agreed_ = logged_ = logged; }
  /// The log has something else, or nothing.
  [[nodiscard]] bool is_news() const { return !asked_.empty() && agreed_ != logged_; }
  /// It is on record as it is now.
  void noted() { logged_ = agreed_; }

 private:
  Texts asked_;
  Texts agreed_;
  Texts logged_;
};

class Term {
 public:
  explicit Term(const CoordinatorOptions& options);

  /// Goes on with the job of this log, which has one and is of the same step size; before begin().
  void restore(const LogContents& contents);
  /// The first thing of a coordinator that is no standby: names the job, unless it goes on with
  /// one, and begins the next incarnation.
  void start(Outbox& outbox);
  /// Begins a higher incarnation, on record before anybody hears of it: two with the same number
  /// would be the end of fencing.
  void begin(Incarnation incarnation, Outbox& outbox);

  /// 0: a standby that has not heard of one.
  [[nodiscard]] std::uint64_t job() const { return job_; }
  [[nodiscard]] Incarnation incarnation() const { return incarnation_; }
  /// Who accepted that incarnation of that coordinator obeyed us last.
  [[nodiscard]] bool is_ours(Incarnation accepted, std::uint64_t author) const {
    return accepted == incarnation_ && author == identity_;
  }
  /// A member that comes back obeys another coordinator, and would not obey us in this incarnation.
  [[nodiscard]] bool obeys_another(const Hello& hello) const;
  [[nodiscard]] bool is_of_another_job(const Hello& hello) const {
    return job_ != 0 && hello.job != job_;
  }
  /// For a new worker, and for one that has to say what it does. `underway`: members are at work.
  [[nodiscard]] Welcome welcome(MemberId member, bool underway) const;
  [[nodiscard]] Welcome welcome_back(MemberId member) const;

  /// For a new member; never handed out before in this job.
  [[nodiscard]] MemberId new_member_id();
  /// For the view after `last`.
  [[nodiscard]] ViewId view_id_after(const std::optional<View>& last) const;

  /// Of a worker that wants to come: what it has that the job has not.
  [[nodiscard]] std::optional<std::string> difference(const Hello& hello) const {
    return fingerprint_.difference(hello.fingerprint);
  }
  /// It may come, and what was open in the job's fingerprint is what it says.
  void admit(const Hello& hello, Outbox& outbox);
  /// The same of a member that comes back: its job is ours, and its id is taken.
  void admit_again(const Hello& hello, Outbox& outbox);
  /// A first worker that is gone again binds nobody.
  void forget_workers() { fingerprint_.forget_workers(); }

 private:
  std::uint64_t identity_;
  std::uint32_t microbatches_;
  bool has_quorum_;

  std::uint64_t job_ = 0;
  Incarnation incarnation_{};
  MemberId last_id_{};
  JobFingerprint fingerprint_;
};

}  // namespace mayfly::elastic
