// What the trainer tells the coordinator's process about its steps and views.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/log.hpp"
#include "engine/training/trainer.hpp"
#include "nn/optimizer.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kRecentRecords = 64;

std::string hex_of(const std::array<std::uint32_t, 4>& lanes) {
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", lanes[3], lanes[2], lanes[1], lanes[0]);
}

}  // namespace

void Trainer::record(const elastic::View& view, const ReducedStep& reduced,
                     const StepFacts& facts) {
  StepRecord record;
  record.step = value(position_);
  record.view = value(view.id);
  record.members = static_cast<std::uint32_t>(view.members.size());
  record.samples = static_cast<std::uint32_t>(reduced.totals.samples);
  record.correct = static_cast<std::uint32_t>(reduced.totals.correct);
  record.loss = facts.loss;
  record.loss_scale = facts.scale.has_value() ? facts.scale->exponent : StepRecord::kNoScale;
  record.skipped = reduced.skips_update();
  record.attempts = facts.attempts;
  record.learning_rate = nn::learning_rate_at(parts_.job.schedule, record.step);
  const Instant now = monotonic_now();
  record.seconds = last_commit_.ns == 0 ? 0 : to_seconds(now - last_commit_);
  last_step_ = now - last_commit_;
  last_commit_ = now;
  const Duration waited = parts_.loader.time_waited();
  record.wait_ms = to_ms(waited - waited_at_commit_) /
                   static_cast<double>(std::max<std::size_t>(1, parts_.pool.thread_count()));
  waited_at_commit_ = waited;
  record.sample_hash = hex_of(reduced.totals.sample_hash);
  if (observes_) {
    return;  // others report this step, with the digest that we cannot give
  }
  if (is_digest_step(state_.committed)) {
    record.digest = to_string(nn::digest_of(state_here()));
  }
  ENSURE(record.samples == parts_.job.config.global_batch,
         "a committed step has used exactly the global batch");
  repeat_to_coordinator_that_was_away(view);
  if (is_reporter_) {
    parts_.client.send_report(encode_record(record));
  }
  parts_.recent_records.push_back(std::move(record));
  if (parts_.recent_records.size() > kRecentRecords) {
    parts_.recent_records.pop_front();
  }
}

bool Trainer::repeat_to_coordinator_that_was_away(const elastic::View& view) {
  if (parts_.client.connections() == told_connection_) {
    return false;
  }
  repeat_recent_records(view);
  return true;
}

void Trainer::repeat_recent_records(const elastic::View& view) {
  told_connection_ = parts_.client.connections();
  // The source too: the last commit may be known only to it and to a reporter that is lost.
  if (is_reporter_ || rank_ == view.source) {
    for (const StepRecord& record : parts_.recent_records) {
      parts_.client.send_report(encode_record(record));
    }
  }
}

void Trainer::report_stopped(ViewId view, const ViewEnd& end) {
  take_state_if_caught_up();
  elastic::member_event::TrainerStopped stopped;
  stopped.view = view;
  stopped.committed = state_.committed;
  stopped.finished = end.finished;
  if (computing_ == next(state_.committed) && attempt_ == 0) {
    stopped.held = held_;
  }
  if (observes_ && observer_.has_value()) {
    stopped.observed = observer_->observed();
  }
  stopped.dispute = dispute_;
  stopped.hashes = disputed_;
  stopped.contradicts_itself = is_unsound_;
  if (end.failure.has_value()) {
    stopped.failed = end.failure->code != Errc::kAborted;
    stopped.culprit = end.failure->culprit;
    stopped.unanswered = end.failure->code == Errc::kUnreachable;
    stopped.detail = end.failure->detail;
    log::info(fmt::format("view {} ended after step {}: {}", value(view), value(state_.committed),
                          end.failure->detail));
  }
  parts_.client.post(stopped);
}

void Trainer::report_fatal(const std::string& reason, bool only_here) {
  if (only_here || is_reporter_) {
    parts_.client.send_report(encode_record(FatalRecord{reason}));
  }
}

}  // namespace mayfly::engine
