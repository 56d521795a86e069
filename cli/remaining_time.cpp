#include "cli/remaining_time.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "engine/cloud/kept_plan.hpp"
#include "engine/run/plan_file.hpp"
#include "engine/run/record_json.hpp"
#include "planner/runs/remaining.hpp"

namespace mayfly::cli {
namespace {

namespace json = boost::json;

using observe::RunFold;

constexpr std::size_t kRowsMost = 4096;  // the newest rows, from which the speed is computed
constexpr std::size_t kWindows = 13;     // as in `mayfly plan fit`
constexpr std::size_t kWindowLeast = 2;  // steps

/// A step with the time since the one before, stops included.
struct TimedStep {
  double seconds = 0;
  double members = 0;
};

/// The newest steps since the last interruption of the job, in order.
std::vector<TimedStep> newest_steps(const RunFold& run) {
  double begin = 0;
  for (const observe::JobSpan& span : run.spans()) {
    if (span.kind == "not_running" || span.kind == "paused") {
      begin = std::max(begin, span.to.value_or(run.end()));
    }
  }
  const observe::Curves& rows = run.kept();
  std::vector<TimedStep> steps;
  const std::size_t first = rows.rows() > kRowsMost ? rows.rows() - kRowsMost : 1;
  for (std::size_t row = first; row < rows.rows(); ++row) {
    const TimedStep step{rows.time(row) - rows.time(row - 1),
                         rows.value(observe::Value::kMembers, row)};
    if (rows.time(row - 1) >= begin && step.seconds > 0 && step.members > 0) {
      steps.push_back(step);
    }
  }
  return steps;
}

/// Adds measured speeds of the job with its present number of members. If too few steps had that
/// number, all steps count, converted by the plan's speeds or in proportion to their members.
void add_windows(const RunFold& run, const planner::KeptPlan* plan, planner::RestOfJob& rest) {
  std::vector<TimedStep> steps = newest_steps(run);
  const auto with_present = [&rest](const TimedStep& step) { return step.members == rest.members; };
  if (std::ranges::count_if(steps, with_present) >=
      static_cast<std::ptrdiff_t>(kWindows * kWindowLeast)) {
    std::erase_if(steps, [&](const TimedStep& step) { return !with_present(step); });
  }
  const std::size_t windows = std::min(kWindows, steps.size() / kWindowLeast);
  const std::size_t length = windows > 0 ? steps.size() / windows : 0;
  rest.window_steps = static_cast<double>(length);
  for (std::size_t window = 0; window < windows; ++window) {
    double seconds = 0;
    for (std::size_t i = 0; i < length; ++i) {
      const TimedStep& step = steps[steps.size() - 1 - window * length - i];
      const double faster = plan == nullptr
                                ? step.members / rest.members
                                : plan->speed(rest.machine, static_cast<int>(step.members)) /
                                      plan->speed(rest.machine, rest.members);
      seconds += step.seconds * faster;
    }
    rest.window_speeds.push_back(static_cast<double>(length) / seconds);
  }
}

void add_servers(const RunFold& run, const planner::KeptPlan* plan, planner::RestOfJob& rest) {
  rest.members_soon = rest.members;
  const observe::Servers& servers = run.servers();
  // A provider replaces lost servers, which are not yet in the present cost.
  if (plan != nullptr && !servers.lanes().empty() && !servers.points().empty()) {
    // `mayfly scale` or a replan may have set another target than the plan's.
    const double wanted = run.workers_wanted() - run.setting_number("spares");
    rest.members_soon = std::max(rest.members, static_cast<int>(wanted));
    const double paid = std::max(1U, servers.points().back().billing);
    if (rest.price_per_hour) {
      *rest.price_per_hour *= std::max(1.0, rest.members_soon / paid);
    }
  }
  for (const observe::ServerLane& lane : servers.lanes()) {
    if (!lane.granted || lane.ended) {
      continue;
    }
    rest.servers.push_back({lane.offer, run.end() - *lane.granted});
    const planner::PlannedOffer* offer = plan != nullptr ? plan->find_offer(lane.offer) : nullptr;
    if (offer != nullptr && rest.machine.empty()) {
      rest.machine = offer->machine;
    }
  }
}

int active_members(const json::object& status) {
  int active = 0;
  const json::value* members = status.if_contains("members");
  if (members == nullptr || !members->is_array()) {
    return active;
  }
  for (const json::value& member : members->get_array()) {
    const json::object* fields = member.if_object();
    const json::value* phase = fields != nullptr ? fields->if_contains("phase") : nullptr;
    active += phase != nullptr && *phase == "active" ? 1 : 0;
  }
  return active;
}

std::string time_text(const planner::PlannedRange& time) {
  const bool is_long = time.median >= kSecondsPerHour;
  const double unit = is_long ? kSecondsPerHour : 1;
  return fmt::format("{:.{}f} {} ({:.{}f} to {:.{}f})", time.median / unit, is_long ? 2 : 0,
                     is_long ? "h" : "s", time.low / unit, is_long ? 2 : 0, time.high / unit,
                     is_long ? 2 : 0);
}

void add_words(const Result<planner::Remaining>& left, json::object& status) {
  if (!left.ok()) {
    status["time_left"] = "unknown: " + left.error().detail;
    return;
  }
  const planner::Remaining& rest = left.value();
  status["time_left"] = time_text(rest.time_s);
  if (rest.cost) {
    status["cost_left"] = fmt::format("{:.4g} ({:.4g} to {:.4g})", rest.cost->median,
                                      rest.cost->low, rest.cost->high);
  }
  if (rest.losses > 0) {
    status["losses_expected"] = fmt::format("{:.2g}", rest.losses);
  }
  status["left_rests_on"] = rest.rests_on;
}

json::object object_of(const Result<planner::Remaining>& left, double steps) {
  json::object object = {{"steps", steps}};
  if (!left.ok()) {
    object["unknown"] = left.error().detail;
    return object;
  }
  const planner::Remaining& rest = left.value();
  object["time_s"] = engine::value_of(rest.time_s);
  object["cost"] = engine::value_of(rest.cost);
  object["losses"] = rest.losses;
  object["rests_on"] = rest.rests_on;
  return object;
}

}  // namespace

Result<RemainingTime> RemainingTime::open(const std::string& run_dir,
                                          const std::string& plan_file) {
  RemainingTime time;
  if (!plan_file.empty()) {
    TRY_ASSIGN(time.plan_, engine::read_kept_plan(plan_file));
  } else if (Result<planner::KeptPlan> kept = engine::read_kept_plan(engine::plan_path(run_dir));
             kept.ok()) {
    time.plan_ = std::move(kept).value();
  }
  Result<std::unique_ptr<observe::RunFollower>> records = observe::RunFollower::open(run_dir);
  if (records.ok()) {
    time.records_ = std::move(records).value();
  }
  return time;
}

void RemainingTime::add_to(json::object& status, bool in_words) {
  const double total = engine::number_or(status, "total_steps", NAN);  // 0: no program has said it
  const double steps_left = total - engine::number_or(status, "committed", NAN);
  if (records_ == nullptr || !(total > 0) || !(steps_left >= 0)) {
    return;
  }
  (void)records_->poll();
  RunFold& run = records_->fold();
  planner::RestOfJob rest;
  rest.steps_left = steps_left;
  rest.members = std::max(1, active_members(status));
  if (const double per_hour = engine::number_or(status, "cost_per_hour", NAN); per_hour >= 0) {
    rest.price_per_hour = per_hour;
  }
  const planner::KeptPlan* plan = plan_ ? &*plan_ : nullptr;
  add_servers(run, plan, rest);
  add_windows(run, plan, rest);
  const Result<planner::Remaining> left = planner::remaining(rest, plan);
  if (in_words) {
    add_words(left, status);
  } else {
    status["remaining"] = object_of(left, steps_left);
  }
}

}  // namespace mayfly::cli
