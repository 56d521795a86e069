// What a run recorder says of a job that has ended.

#include <fmt/format.h>

#include <algorithm>

#include "base/log.hpp"
#include "engine/job/job.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/record_json.hpp"
#include "engine/run/run_recorder.hpp"

namespace mayfly::engine {
namespace {

std::optional<Summary::Evaluations> evaluations_of(const std::string& run_dir) {
  std::optional<Summary::Evaluations> all;
  for (const Evaluation& one : read_evaluations(run_dir)) {
    all = all.value_or(Summary::Evaluations());
    ++all->count;
    if (one.step >= all->step) {
      all->step = one.step;
      all->test_top1 = one.test_top1;
      all->test_loss = one.test_loss;
    }
    if (!one.evaluator.empty() &&
        std::ranges::find(all->evaluators, one.evaluator) == all->evaluators.end()) {
      all->evaluators.push_back(one.evaluator);
    }
  }
  return all;
}

}  // namespace

/// By our own clock, unless another process heard of the first steps.
double RunRecorder::train_seconds() const {
  return goes_on_ ? history_.train_seconds : to_seconds(last_commit_ - first_commit_);
}

/// Of the steps up to this one, each once, whether or not its record came.
std::uint64_t RunRecorder::samples_of(std::uint64_t step) const {
  const std::uint64_t batch = job_.config.global_batch;
  const std::uint64_t all = history_.samples + history_.missing.size() * batch;
  const std::uint64_t later = history_.last_step - std::min(step, history_.last_step);
  return all - std::min(all, later * batch);
}

/// Of the state after this step, empty if nobody has said it. Who had it may be gone, but not its
/// checkpoint.
std::string RunRecorder::digest_of(std::uint64_t step) const {
  if (history_.digest_step == step && !history_.last_digest.empty()) {
    return history_.last_digest;
  }
  if (step == history_.start.step) {
    return history_.start.digest;
  }
  const Result<LoadedCheckpoint> here =
      load_checkpoint(folder_of_checkpoint(job_.config.run_dir + "/checkpoints", Step{step}));
  return here.ok() ? to_string(here.value().info.digest) : std::string();
}

Summary RunRecorder::make_summary(const JobEnd& end) const {
  const std::lock_guard lock(mutex_);
  Summary s;
  s.outcome = end.outcome;
  s.detail = end.detail;
  s.steps = std::max(history_.current_step, history_.start.step);
  s.samples = samples_of(s.steps);
  s.undone_samples = history_.undone_samples;
  s.retried_steps = history_.retried_steps;
  s.skipped_steps =
      job_.dtype == nn::Dtype::kFp16 ? std::optional(history_.skipped_steps) : std::nullopt;
  s.final_digest = digest_of(s.steps);
  if (history_.evaluation.has_value()) {
    s.test_top1 = history_.evaluation->top1;
    s.test_loss = history_.evaluation->loss;
  }
  s.train_seconds = train_seconds();
  s.data_wait_seconds = history_.data_wait_seconds;
  const auto timed_steps = static_cast<double>(s.steps - std::min(s.steps, history_.first_step));
  s.images_per_second =
      s.train_seconds > 0 ? timed_steps * job_.config.global_batch / s.train_seconds : 0;
  s.membership_changes = history_.views > 0 ? history_.views - 1 : 0;
  s.recoveries = history_.recoveries;
  s.workers = history_.stays();
  s.evaluations = evaluations_of(job_.config.run_dir);
  s.lost_seconds = {history_.recovery_seconds(), history_.waiting_seconds,
                    history_.evaluation_seconds, history_.checkpoint_seconds,
                    history_.data_wait_seconds};
  s.cost = spending_ ? std::optional(spending_->spent) : std::nullopt;
  s.reduction = job_.config.reduction;
  s.backend = job_.config.backend;
  s.device = job_.facts.device;
  s.isa = job_.facts.isa;
  s.dtype = nn::name_of(job_.dtype);
  s.conv_kernels = job_.facts.conv_kernels;
  s.model = job_.config.model;
  s.data = job_.facts.data;
  s.left_out = job_.facts.left_out;
  s.seed = job_.config.seed;
  s.last_checkpoint = history_.last_checkpoint;
  s.version = kVersion;
  return s;
}

void RunRecorder::note_missing_records() {
  const std::lock_guard lock(mutex_);
  if (history_.missing.empty()) {
    return;
  }
  const std::vector<std::uint64_t> steps(history_.missing.begin(), history_.missing.end());
  directory_.event("records_missing", {{"steps", value_of(steps)}});
  log::warning(
      fmt::format("metrics.jsonl lacks {} steps that were committed; events.jsonl says "
                  "which",
                  steps.size()));
}

std::optional<std::string> RunRecorder::unsaved_state() const {
  const std::lock_guard lock(mutex_);
  // The record of the last commit may be lost with its reporter, but not the checkpoint.
  const std::uint64_t last = history_.current_step;
  if (newest_here_ && value(*newest_here_) >= last) {
    return std::nullopt;
  }
  if (unsaved_ && unsaved_->step >= last) {
    return "the last state is lost: " + unsaved_->text;
  }
  if (last <= history_.start.step) {
    return std::nullopt;  // nothing was computed
  }
  // Who wrote it may have told a coordinator that died.
  const Result<LoadedCheckpoint> found = load_checkpoint(job_.config.run_dir);
  if (found.ok() && value(found.value().info.committed) >= last) {
    return std::nullopt;
  }
  if (history_.checkpoints.lower_bound(last) != history_.checkpoints.end()) {
    return fmt::format(
        "the checkpoint of step {} did not come to {}: it is only where its worker "
        "wrote it, {}",
        last, job_.config.run_dir, history_.last_checkpoint);
  }
  return fmt::format("the last state is lost: nobody has written a checkpoint of step {}", last);
}

bool RunRecorder::write_summary(const JobEnd& end) {
  note_missing_records();
  close_accounts();
  Summary summary = make_summary(end);
  const Result<void> written = directory_.summary(summary);
  if (!written.ok()) {
    summary.outcome = elastic::Outcome::kFailed;
    summary.detail +=
        (summary.detail.empty() ? "" : "; ") + ("no summary: " + written.error().detail);
  }
  if (!end.was_refused) {
    listener_.on_summary(summary);
  }
  return written.ok();
}

}  // namespace mayfly::engine
