// The part of engine/cloud/cloud that compares the present servers with others. The decision is
// planner/runs/replan's; here are its facts, and what follows from it.

#include <algorithm>

#include "engine/cloud/cloud.hpp"
#include "engine/cloud/kept_plan.hpp"
#include "engine/run/plan_file.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::engine {
namespace {

/// A change of members is seen within this time.
constexpr Duration kReplanLook = milliseconds(250);

const char* name_of(planner::Change change) {
  switch (change) {
    case planner::Change::kMore: return "more";
    case planner::Change::kFewer: return "fewer";
    case planner::Change::kOther: break;
  }
  return "other";
}

planner::ReplanServer planned_server(const cloud_hooks::Composition::Part& part) {
  return {to_string(part.offer), part.price_per_hour, part.speed, part.is_measured,
          to_seconds(part.age)};
}

}  // namespace

void Cloud::begin_replanning() {
  const JobConfig& config = process_.config();
  if (config.cloud_replan == "off") {
    return;
  }
  planner::ReplanOptions options;
  options.every = Duration(static_cast<std::int64_t>(config.cloud_replan_every * 1e9));
  options.acts = config.cloud_replan == "act";
  options.microbatches = process_.job().microbatches;
  options.workers_most = std::max(config.workers, config.cloud_max_workers);
  if (config.cloud_budget > 0) {
    options.budget = config.cloud_budget;
  }
  if (config.cloud_budget_per_hour > 0) {
    options.budget_per_hour = config.cloud_budget_per_hour;
  }
  if (Result<planner::KeptPlan> plan = read_kept_plan(plan_path(config.run_dir)); plan.ok()) {
    options.plan = std::move(plan).value();
  }
  replanner_.emplace(std::move(options));
}

planner::ReplanFacts Cloud::replan_facts(const elastic::JobStatus& status,
                                         const cloud_hooks::Composition& present) {
  planner::ReplanFacts facts;
  facts.steps_done = static_cast<double>(value(status.committed));
  facts.steps_left = static_cast<double>(process_.job().total_steps) - facts.steps_done;
  facts.elapsed_s = process_.recorder().seconds_at(monotonic_now());
  for (const cloud_hooks::Composition::Part& part : present.working) {
    facts.servers.push_back(planned_server(part));
  }
  if (present.next) {
    facts.next = planned_server(*present.next);
  }
  {
    const std::lock_guard lock(driver_mutex_);
    facts.wanted = workers_wanted_;
  }
  facts.is_settled = present.is_settled && facts.servers.size() == facts.wanted;
  facts.spent = driver_->status().spent;
  return facts;
}

void Cloud::replan(const elastic::JobStatus& status) {
  const Instant now = monotonic_now();
  if (!replanner_ || status.phase != elastic::JobPhase::kRunning || now < replan_due_) {
    return;
  }
  replan_due_ = now + kReplanLook;
  const std::optional<cloud_hooks::Composition> present = driver_->composition();
  if (!present) {
    return;
  }
  const planner::ReplanEffects effects = replanner_->handle(now, replan_facts(status, *present));
  if (effects.proposal) {
    const planner::Proposal& proposal = *effects.proposal;
    process_.propose(proposal.because);
    process_.recorder().fact({"replan",
                              {{"detail", proposal.because},
                               {"change", name_of(proposal.change)},
                               {"offer", proposal.offer},
                               {"gain", value_of(proposal.gain)},
                               {"unit", proposal.is_time ? "s" : "money"},
                               {"acts", effects.workers.has_value()}},
                              "replan: " + proposal.because});
  }
  if (effects.workers) {
    const Result<std::string> done = scale(*effects.workers);
    const std::string& text = done.ok() ? done.value() : done.error().detail;
    json::object fields = {{"detail", text}};
    if (done.ok()) {
      fields["workers"] = *effects.workers;
    }
    process_.recorder().fact({"replan_scaled", fields, text});
  }
}

}  // namespace mayfly::engine
