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

class Term {
 public:
  explicit Term(const CoordinatorOptions& options);

  /// Goes on with the job of this log, which has one and is of the same step size; before begin().
  void restore(const LogContents& contents);
  /// The first thing of a coordinator that is no standby, or was one: names the job, unless it goes
  /// on with one, and begins the next incarnation.
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

  /// The first difference between the fingerprints of the job and of a worker that wants to join,
  /// as a text for an operator; nothing if they are equal.
  [[nodiscard]] std::optional<std::string> difference(const Hello& hello) const;
  /// A member of an earlier incarnation is accepted: its job is ours, and its id is taken. The
  /// first one that comes to a standby names the job, which goes on record.
  void admit_again(const Hello& hello, Outbox& outbox);

 private:
  std::uint64_t identity_;
  std::uint32_t microbatches_;
  bool has_quorum_;

  std::uint64_t job_ = 0;
  Incarnation incarnation_{};
  MemberId last_id_{};
  std::vector<std::pair<std::string, std::string>> fingerprint_;  // equal on all workers
};

}  // namespace mayfly::elastic
