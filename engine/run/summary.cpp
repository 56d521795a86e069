#include "engine/run/summary.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/job/job.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/evaluations.hpp"
#include "engine/run/run_history.hpp"

namespace mayfly::engine {
namespace {

/// `step` and its results are those of the last evaluation of a step up to `last_step`: a resumed
/// job may end at an earlier step than the part before it. Nothing if there is no such evaluation.
std::optional<Summary::Evaluations> evaluations_of(const std::string& run_dir,
                                                   std::uint64_t last_step) {
  Summary::Evaluations all;
  bool has_last = false;
  for (const Evaluation& one : read_evaluations(run_dir)) {
    ++all.count;
    if (one.step >= all.step && one.step <= last_step) {
      has_last = true;
      all.step = one.step;
      all.test_top1 = one.test_top1;
      all.test_loss = one.test_loss;
    }
    if (!one.evaluator.empty() &&
        std::ranges::find(all.evaluators, one.evaluator) == all.evaluators.end()) {
      all.evaluators.push_back(one.evaluator);
    }
  }
  return has_last ? std::optional(std::move(all)) : std::nullopt;
}

/// The samples of the steps up to this one, each step once, whether or not its record arrived.
std::uint64_t samples_until(std::uint64_t step, const RunHistory& history, std::uint64_t batch) {
  const std::uint64_t all = history.samples + history.missing.size() * batch;
  const std::uint64_t later = history.last_step - std::min(step, history.last_step);
  return all - std::min(all, later * batch);
}

/// The digest of the state after this step; empty if no member has reported it. It is also read
/// from the step's checkpoint, which may outlive the members that had the state.
std::string digest_after(std::uint64_t step, const RunHistory& history,
                         const std::string& run_dir) {
  if (history.digest_step == step && !history.last_digest.empty()) {
    return history.last_digest;
  }
  if (step == history.start.step) {
    return history.start.digest;
  }
  const Result<LoadedCheckpoint> here =
      load_checkpoint(folder_of_checkpoint(run_dir + "/checkpoints", Step{step}));
  return here.ok() ? to_string(here.value().info.digest) : std::string();
}

}  // namespace

Summary summary_of(const Job& job, const RunHistory& history, double train_seconds) {
  Summary s;
  s.steps = std::max(history.current_step, history.start.step);
  s.samples = samples_until(s.steps, history, job.config.global_batch);
  s.undone_samples = history.undone_samples;
  s.retried_steps = history.retried_steps;
  s.skipped_steps =
      job.dtype == nn::Dtype::kFp16 ? std::optional(history.skipped_steps) : std::nullopt;
  s.final_digest = digest_after(s.steps, history, job.config.run_dir);
  if (history.evaluation.has_value()) {
    s.test_top1 = history.evaluation->top1;
    s.test_loss = history.evaluation->loss;
  }
  s.train_seconds = train_seconds;
  s.data_wait_seconds = history.data_wait_seconds;
  const auto timed_steps = static_cast<double>(s.steps - std::min(s.steps, history.first_step));
  s.images_per_second =
      s.train_seconds > 0 ? timed_steps * job.config.global_batch / s.train_seconds : 0;
  s.membership_changes = history.views > 0 ? history.views - 1 : 0;
  s.recoveries = history.recoveries;
  s.workers = history.stays();
  s.evaluations = evaluations_of(job.config.run_dir, s.steps);
  s.lost_seconds = {history.recovery_seconds(), history.waiting_seconds, history.evaluation_seconds,
                    history.checkpoint_seconds, history.data_wait_seconds};
  s.sync = job.config.phases.empty() ? job.config.sync : job.config.phases;
  s.reduction = job.config.reduction;
  s.backend = job.config.backend;
  s.device = job.facts.device;
  s.isa = job.facts.isa;
  s.dtype = nn::name_of(job.dtype);
  s.conv_kernels = job.facts.conv_kernels;
  s.model = job.config.model;
  s.data = job.facts.data;
  s.left_out = job.facts.left_out;
  s.seed = job.config.seed;
  s.last_checkpoint = history.last_checkpoint;
  s.version = kVersion;
  return s;
}

std::optional<std::string> unsaved_state(const RunHistory& history, const std::string& run_dir,
                                         const std::optional<Step>& newest_received,
                                         const std::optional<CheckpointRecord>& failed) {
  // The record of the last commit may be lost with its reporter, but not the checkpoint.
  const std::uint64_t last = history.current_step;
  if (newest_received && value(*newest_received) >= last) {
    return std::nullopt;
  }
  if (failed && failed->step >= last) {
    return "the last state is lost: " + failed->text;
  }
  if (last <= history.start.step) {
    return std::nullopt;  // nothing was computed
  }
  // The writer of a checkpoint may have reported it to a coordinator that died.
  const Result<LoadedCheckpoint> found = load_checkpoint(run_dir);
  if (found.ok() && value(found.value().info.committed) >= last) {
    return std::nullopt;
  }
  if (history.checkpoints.lower_bound(last) != history.checkpoints.end()) {
    return fmt::format(
        "the checkpoint of step {} did not reach {}: it exists only where its worker wrote it, {}",
        last, run_dir, history.last_checkpoint);
  }
  const std::uint64_t saved = found.ok() ? value(found.value().info.committed) : 0;
  return fmt::format(
      "the last state is lost: no process has written a checkpoint of step {}, and {}", last,
      saved > 0 ? fmt::format("the newest one is of step {}", saved) : "there is no earlier one");
}

}  // namespace mayfly::engine
