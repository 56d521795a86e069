#include "engine/launch/last_reports.hpp"

#include "engine/processes/coordinator_process.hpp"

namespace mayfly::engine {
namespace {

constexpr Duration kMembersExitTimeout = seconds(20);
constexpr Duration kLastStateTimeout = seconds(600);  // until a member has written it to its disk

}  // namespace

LastReports::LastReports(const JobEnd& end, bool has_begun, Instant now)
    : is_state_awaited_(has_begun && (end.outcome == elastic::Outcome::kStopped ||
                                      end.outcome == elastic::Outcome::kTooFewWorkers)),
      saved_by_(now + kLastStateTimeout),
      deadline_(now + kMembersExitTimeout) {}

LastReports::News LastReports::look(CoordinatorProcess& process, bool is_interrupted) {
  const JobProgress& progress = process.recorder().progress();
  return {.has_members = !process.server().status().members.empty(),
          .is_state_saved = progress.has_checkpoint(Step{progress.last_step()}),
          .is_receiving = process.is_receiving(),
          .is_interrupted = is_interrupted};
}

bool LastReports::is_time_left(Instant now, const News& news) {
  const bool is_writing = is_state_awaited_ && news.has_members && !news.is_state_saved &&
                          !news.is_interrupted && now < saved_by_;
  if (is_writing || news.is_receiving) {
    deadline_ = now + kMembersExitTimeout;
  }
  return now < deadline_;
}

}  // namespace mayfly::engine
