#include "engine/training/step_reports.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/check.hpp"

namespace mayfly::engine {
namespace {

constexpr std::size_t kRecentRecords = 64;
constexpr Duration kProgressInterval = milliseconds(100);

std::string hex_of(const std::array<std::uint32_t, 4>& lanes) {
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", lanes[3], lanes[2], lanes[1], lanes[0]);
}

/// The resources that this process has used, by getrusage(2), whose memory is in KiB.
elastic::ProcessUse use_so_far() {
  rusage use{};
  if (::getrusage(RUSAGE_SELF, &use) != 0) {
    return {};
  }
  const auto ms = [](const timeval& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * 1000 +
           static_cast<std::uint64_t>(time.tv_usec) / 1000;
  };
  return {ms(use.ru_utime) + ms(use.ru_stime), static_cast<std::uint32_t>(use.ru_maxrss / 1024)};
}

}  // namespace

void StepReports::committed(const elastic::View& view, const ViewPart& part,
                            const ReducedStep& reduced, const StepFacts& facts) {
  StepRecord record;
  record.step = value(part.position);
  record.view = value(view.id);
  record.members = static_cast<std::uint32_t>(view.members.size());
  const auto samples = static_cast<double>(reduced.totals.samples);
  record.samples = static_cast<std::uint64_t>(reduced.totals.samples);
  record.epoch = job_.epochs_at(record.step);
  record.loss = facts.loss;
  record.accuracy = static_cast<double>(reduced.totals.correct) / samples;
  if (facts.scale) {
    record.loss_scale = std::ldexp(1.0, facts.scale->exponent);
  }
  record.skipped = reduced.skips_update();
  record.attempts = facts.attempts;
  record.learning_rate = state_.learning_rate();
  record.own = state_.own_metrics();
  const Instant now = monotonic_now();
  record.before = clock_.committed(now, waited(), view);
  // By this member's clock: its reports may arrive in bursts.
  const Duration took = clock_.last_step();
  record.images_per_second = took == Duration{} ? 0 : samples / to_seconds(took);
  record.data_wait_ms = to_ms(clock_.last_wait());
  record.checkpoint_ms = to_ms(clock_.last_copy());
  record.committed_at = now;
  record.sample_hash = hex_of(reduced.totals.sample_hash);
  if (part.observes) {
    return;  // other members report this step, with the digest, which this member does not have
  }
  if (is_digest_step(job_, state_.committed())) {
    record.digest = to_string(state_.digest());
  }
  ENSURE(record.samples == job_.config.global_batch,
         "a committed step has used exactly the global batch");
  repeat_to_coordinator_that_was_away(view, part);
  if (part.is_reporter) {
    client_.send_report(encode_record(record), record.committed_at);
  }
  recent_.push_back(std::move(record));
  if (recent_.size() > kRecentRecords) {
    recent_.pop_front();
  }
}

void StepReports::send_progress(const elastic::View& view, const ViewPart& part) {
  const Instant now = monotonic_now();
  if (!part.is_first_step() && now - last_progress_ < kProgressInterval) {
    return;
  }
  const ComputeSpeed speed = computer_.take_speed();
  client_.send_progress({view.id, part.position, static_cast<float>(speed.microbatch_ms),
                         speed.microbatches, stages(now), use_so_far()});
  last_progress_ = now;
}

elastic::Stages StepReports::stages(Instant now) {
  if (feed_ == nullptr) {
    return {};
  }
  const auto [loaded, computed] = recent_work_.until(now, {feed_->work(), computer_.computed()});
  if (loaded.microbatches == 0 || computed.microbatches == 0) {
    return {};
  }
  const auto mean_ms = [](Duration all, std::uint64_t count) {
    return static_cast<float>(to_ms(all) / static_cast<double>(count));
  };
  const datasets::FeedSettings settings = feed_->settings();
  return {.fetch_ms = mean_ms(loaded.fetch, loaded.microbatches),
          .prep_ms = mean_ms(loaded.prep, loaded.microbatches),
          .compute_ms = mean_ms(computed.time, computed.microbatches),
          .compute_cpu_ms = mean_ms(computed.processor, computed.microbatches),
          .bytes = static_cast<std::uint32_t>(loaded.bytes / loaded.microbatches),
          .load_threads = static_cast<std::uint16_t>(settings.threads),
          .compute_threads = static_cast<std::uint16_t>(settings.takers),
          .ahead = settings.prefetch_max,
          .yields = settings.yield_cores};
}

void StepReports::evaluated(const ViewPart& part, const EvaluationSums& sums, Duration took) {
  if (!part.is_reporter) {
    return;
  }
  const auto samples = static_cast<double>(sums.samples);
  EvaluationRecord record{value(part.position),
                          static_cast<double>(sums.correct) / samples,
                          sums.loss.total() / samples,
                          to_ms(took),
                          {}};
  const std::vector<std::string>& names = job_.facts.program.sums;
  for (std::size_t i = 0; i < names.size(); ++i) {
    record.sums.push_back({names[i], sums.own[i].total()});
  }
  client_.send_report(encode_record(record));
}

void StepReports::fatal(const std::string& reason) {
  client_.send_report(encode_record(FatalRecord{reason}));
}

void StepReports::repeat(const elastic::View& view, const ViewPart& part) {
  repeated_on_connection_ = client_.connections();
  if (part.is_reporter || part.rank == view.source) {
    for (const StepRecord& record : recent_) {
      client_.send_report(encode_record(record), record.committed_at);
    }
  }
}

bool StepReports::repeat_to_coordinator_that_was_away(const elastic::View& view,
                                                      const ViewPart& part) {
  if (client_.connections() == repeated_on_connection_) {
    return false;
  }
  repeat(view, part);
  return true;
}

std::uint32_t StepReports::previous_step_us(const ViewPart& part) const {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(clock_.last_step()).count();
  return part.is_first_step()
             ? 0
             : static_cast<std::uint32_t>(std::clamp<std::int64_t>(us, 1, 1 << 30));
}

MemberWaits StepReports::waited() const {
  const datasets::LoaderWait all = feed_ != nullptr ? feed_->time_waited() : datasets::LoaderWait{};
  const auto threads =
      static_cast<std::int64_t>(std::max<std::size_t>(1, computer_.thread_count()));
  return {all.fetch / threads, all.prep / threads};
}

bool is_digest_step(const Job& job, Step step) {
  const std::uint64_t every = job.config.digest_every;
  return value(step) == job.total_steps || (every > 0 && value(step) % every == 0);
}

bool is_checkpoint_step(const Job& job, Step step) {
  const std::uint64_t every = job.config.checkpoint_every;
  return every > 0 && step != Step{} && value(step) % every == 0 && value(step) < job.total_steps;
}

bool is_compared_step(const Job& job, Step step) {
  constexpr std::uint64_t kAtLeastEvery = 64;  // so that rare digests do not make checkpoints rare
  return is_digest_step(job, step) || is_checkpoint_step(job, step) ||
         value(step) % kAtLeastEvery == 0;
}

CheckpointSchedule::CheckpointSchedule(const Job& job, Step committed)
    : job_(job), saved_(committed), saved_at_(monotonic_now()) {}

bool CheckpointSchedule::take(Step committed, const ViewPart& part, Instant now, bool is_leaving) {
  const bool is_rescue = is_due_as_rescue(committed, now, is_leaving);
  const bool is_alone = is_due_alone(part, now);
  const bool is_wanted = is_rescue || is_alone || is_checkpoint_step(job_, committed) ||
                         is_due_by_time(committed, part, now);
  if (!is_wanted || saved_ == committed) {
    return false;
  }
  if (part.is_reporter) {  // other members write it if the reporter is lost before it has
    saved_ = committed;
  }
  saved_at_ = now;
  if (is_rescue) {
    rescued_at_ = now;
  }
  return true;
}

bool CheckpointSchedule::is_due_by_time(Step committed, const ViewPart& part, Instant now) const {
  const double minutes = job_.config.checkpoint_minutes;
  const bool is_old =
      minutes > 0 && now - saved_at_ >= Duration(static_cast<std::int64_t>(minutes * 60e9));
  return is_old && part.is_reporter && committed != Step{} && is_compared_step(job_, committed);
}

bool CheckpointSchedule::is_due_as_rescue(Step committed, Instant now, bool is_leaving) {
  constexpr Duration kGrantedWithin = seconds(1);
  constexpr std::uint64_t kGrantedWithinSteps = 2;
  if (!is_leaving) {
    return false;
  }
  if (!leaving_since_) {
    leaving_since_ = {now, committed};
  }
  return now - leaving_since_->first >= kGrantedWithin &&
         value(committed) >= value(leaving_since_->second) + kGrantedWithinSteps &&
         (!rescued_at_ || now - *rescued_at_ >= kRescueInterval);
}

bool CheckpointSchedule::is_due_alone(const ViewPart& part, Instant now) {
  if (!part.is_last_holder) {
    alone_since_.reset();
    return false;
  }
  if (!alone_since_) {
    alone_since_ = now;
  }
  // Not at once: a new worker often joins soon, and a checkpoint would delay the first steps after
  // a loss.
  return job_.config.checkpoint_minutes > 0 && now - *alone_since_ >= kAloneWithin &&
         (saved_at_ < *alone_since_ || now - saved_at_ >= kAloneInterval);
}

}  // namespace mayfly::engine
