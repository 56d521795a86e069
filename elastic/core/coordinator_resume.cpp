#include "base/check.hpp"
#include "elastic/core/coordinator.hpp"

// Before a coordinator is in charge: its own beginning, and the return of members that have
// outlived the one before it.

namespace mayfly::elastic {

Coordinator::Coordinator(CoordinatorOptions options, const LogContents& contents)
    : Coordinator(std::move(options)) {
  ENSURE(!contents.ended, "a job that has ended is not resumed");
  ENSURE(!options_.standby, "a standby has no log");
  if (contents.job == 0) {
    return;  // the one before died before it had begun
  }
  ENSURE(contents.microbatches == options_.microbatches, "the job is the same as before");
  job_ = contents.job;
  incarnation_ = contents.incarnation;
  view_ = contents.view;
  pause_asked_ = contents.is_paused;
}

void Coordinator::begin() {
  if (options_.standby) {
    return;
  }
  if (job_ == 0) {
    job_ = options_.identity;
    append(log_record::JobStarted{job_, options_.microbatches, options_.fingerprint});
  }
  begin_incarnation(next(incarnation_));
}

/// Durable: two reigns with the same number would be the end of fencing.
void Coordinator::begin_incarnation(Incarnation incarnation) {
  ENSURE(incarnation > incarnation_, "incarnations only grow");
  incarnation_ = incarnation;
  last_id_ = MemberId{id_base(incarnation_)};
  append(log_record::IncarnationStarted{incarnation_}, true);
}

}  // namespace mayfly::elastic
