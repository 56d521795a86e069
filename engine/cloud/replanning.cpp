#include "engine/cloud/replanning.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "engine/cloud/kept_plan.hpp"
#include "engine/run/plan_file.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::engine {
namespace {

/// A change of members is noticed within this time.
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

Replanning::Replanning(const JobConfig& config, std::uint32_t microbatches) {
  if (config.cloud_replan == "off") {
    return;
  }
  planner::ReplanOptions options;
  options.every = Duration(static_cast<std::int64_t>(config.cloud_replan_every * 1e9));
  options.acts = config.cloud_replan == "act";
  options.microbatches = microbatches;
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

bool Replanning::is_due(Instant now, elastic::JobPhase phase) {
  if (!replanner_ || phase != elastic::JobPhase::kRunning || now < due_) {
    return false;
  }
  due_ = now + kReplanLook;
  return true;
}

planner::ReplanEffects Replanning::compare(Instant now, const planner::ReplanFacts& facts) {
  ENSURE(replanner_.has_value(), "is_due() has returned true");
  return replanner_->handle(now, facts);
}

planner::ReplanFacts replan_facts(const cloud_hooks::Composition& present, std::uint32_t wanted) {
  planner::ReplanFacts facts;
  for (const cloud_hooks::Composition::Part& part : present.working) {
    facts.servers.push_back(planned_server(part));
  }
  if (present.next) {
    facts.next = planned_server(*present.next);
  }
  facts.wanted = wanted;
  facts.is_settled = present.is_settled && facts.servers.size() == wanted;
  return facts;
}

Fact fact_of(const planner::Proposal& proposal, bool acts) {
  return {"replan",
          {{"detail", proposal.because},
           {"change", name_of(proposal.change)},
           {"offer", proposal.offer},
           {"gain", value_of(proposal.gain)},
           {"unit", proposal.is_time ? "s" : "money"},
           {"acts", acts}},
          "replan: " + proposal.because};
}

}  // namespace mayfly::engine
