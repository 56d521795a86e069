#pragma once

// The job and the incarnation of a coordinator: the ids that it assigns, its Welcome, and which
// members obey it. Pure; one thread.

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

  /// Continues the job of this log, which must have one with the same number of microbatches;
  /// before begin().
  void restore(const LogContents& contents);
  /// To be called first by a coordinator that is no standby, or when a standby takes over: gives
  /// the job its id, unless it has one, and begins the next incarnation.
  void start(Outbox& outbox);
  /// Begins a higher incarnation. It is recorded before any member receives it, because members
  /// could not distinguish two coordinators with the same incarnation.
  void begin(Incarnation incarnation, Outbox& outbox);

  /// 0: a standby that does not know the job.
  [[nodiscard]] std::uint64_t job() const { return job_; }
  [[nodiscard]] Incarnation incarnation() const { return incarnation_; }
  /// True if a member that accepted this incarnation of coordinator `author` obeyed this one last.
  [[nodiscard]] bool is_ours(Incarnation accepted, std::uint64_t author) const {
    return accepted == incarnation_ && author == identity_;
  }
  /// The returning member obeys another coordinator, and would not obey this one in its
  /// incarnation.
  [[nodiscard]] bool obeys_another(const Hello& hello) const;
  [[nodiscard]] bool is_of_another_job(const Hello& hello) const {
    return job_ != 0 && hello.job != job_;
  }
  /// The Welcome of a new worker. `underway`: members are training.
  [[nodiscard]] Welcome welcome(MemberId member, bool underway) const;
  /// The Welcome of a returning member, which must answer with Resume.
  [[nodiscard]] Welcome welcome_back(MemberId member) const;

  /// An id for a new member, never assigned before in this job.
  [[nodiscard]] MemberId new_member_id();
  /// The id of the view after `last`.
  [[nodiscard]] ViewId view_id_after(const std::optional<View>& last) const;

  /// The first difference between the fingerprints of the job and of a worker that wants to join,
  /// as a text for an operator; nothing if they are equal.
  [[nodiscard]] std::optional<std::string> difference(const Hello& hello) const;
  /// A member of an earlier incarnation is readmitted: its id will not be assigned again. The first
  /// one that connects to a standby tells it the job, which is recorded.
  void admit_again(const Hello& hello, Outbox& outbox);
  /// The members of the job have left a standby that has not led it. The incarnation stays.
  void forget_job() { job_ = 0; }

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
