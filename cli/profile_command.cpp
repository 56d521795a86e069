// `mayfly profile`: how the time of a run divides, from its records or from other runs.

#include <fmt/format.h>
#include <algorithm>
#include <boost/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/try_assign.hpp"
#include "cli/arguments.hpp"
#include "cli/cli.hpp"
#include "engine/compare/difference_runs.hpp"
#include "engine/run/record_json.hpp"
#include "observe/core/what_if.hpp"
#include "observe/run_follower.hpp"

namespace mayfly::cli {
namespace {

namespace json = boost::json;

using observe::kStepPartNames;
using observe::kStepParts;
using observe::StepProfile;

/// Milliseconds, rounded to the accuracy of a measurement of a step.
double ms(double seconds, std::uint64_t steps) {
  return engine::rounded(1000 * seconds / static_cast<double>(steps), 3);
}

/// The host of the last member with this id in the part of the job whose steps are shown; in
/// another part the same id may belong to another worker.
std::string host_of(const observe::RunFold& run, std::uint64_t member) {
  std::string host;
  for (const observe::MemberLane& lane : run.members().lanes()) {
    const bool is_it = lane.member == member && run.is_profiled(lane.spans.front().from);
    host = is_it ? lane.host : host;
  }
  return host;
}

json::object to_json(const observe::RunFold& run) {
  const StepProfile& profile = run.step_profile();
  json::object step;
  json::array members;
  if (profile.steps() > 0) {
    for (std::size_t part = 0; part < kStepParts; ++part) {
      step[std::string(kStepPartNames[part]) + "_ms"] =
          ms(profile.seconds()[part], profile.steps());
    }
  }
  for (const auto& [member, slowest] : profile.slowest()) {
    json::object of_member = {
        {"member", member}, {"host", host_of(run, member)}, {"steps", slowest.steps}};
    for (std::size_t part = 0; part < kStepParts; ++part) {
      of_member[std::string(kStepPartNames[part]) + "_ms"] =
          ms(slowest.seconds[part], slowest.steps);
    }
    members.push_back(std::move(of_member));
  }
  json::array held_up;
  for (const auto& [member, held] : profile.held_up()) {
    held_up.push_back({{"member", member},
                       {"host", host_of(run, member)},
                       {"steps", held.steps},
                       {"exchange_ms", ms(held.seconds, held.steps)}});
  }
  json::object wall;
  for (const observe::TimeShare& share : run.time_shares()) {
    wall[share.kind] = engine::rounded(share.seconds, 3);
  }
  return {{"steps", profile.steps()},
          {"step", std::move(step)},
          {"slowest", std::move(members)},
          {"held_up", std::move(held_up)},
          {"wall_seconds", std::move(wall)}};
}

std::string as_text(const observe::RunFold& run) {
  const StepProfile& profile = run.step_profile();
  std::string out = "of the run                seconds\n";
  double wall = 0;
  for (const observe::TimeShare& share : run.time_shares()) {
    wall += share.seconds;
  }
  for (const observe::TimeShare& share : run.time_shares()) {
    if (share.seconds > 0) {
      out += fmt::format("  {:<16} {:>14.3f}  {:>5.1f} %\n", share.kind, share.seconds,
                         100 * share.seconds / wall);
    }
  }
  if (profile.steps() == 0) {
    return out + "no record shows what the time of a step was spent on\n";
  }
  out += fmt::format("of a step, mean of {:<7}   ms\n", profile.steps());
  for (std::size_t part = 0; part < kStepParts; ++part) {
    out += fmt::format("  {:<16} {:>14.3f}  {:>5.1f} %\n", kStepPartNames[part],
                       ms(profile.seconds()[part], profile.steps()),
                       100 * profile.seconds()[part] / profile.total());
  }
  const auto line_of = [&](std::uint64_t member, std::uint64_t steps, double seconds) {
    return fmt::format("  {:<20} {:>7.1f} %  {:.3f}\n",
                       fmt::format("worker {} {}", member, host_of(run, member)),
                       100.0 * static_cast<double>(steps) / static_cast<double>(profile.steps()),
                       ms(seconds, steps));
  };
  out += "ready last              of steps  until it was ready, ms\n";
  for (const auto& [member, slowest] : profile.slowest()) {
    out += line_of(member, slowest.steps, slowest.until_ready());
  }
  if (!profile.held_up().empty()) {
    out += "late in the exchange    of steps  others waited longer, ms\n";
  }
  for (const auto& [member, held] : profile.held_up()) {
    out += line_of(member, held.steps, held.seconds);
  }
  return out;
}

/// Questions of --what-if, and the answers.
struct Asked {
  std::string text;
  observe::WhatIfAnswer answer;
};

/// The run without a change, then the answers.
Result<std::vector<Asked>> ask_all(const observe::RecordedSteps& steps, const std::string& text) {
  std::vector<Asked> all = {{"as recorded", observe::as_recorded(steps)}};
  std::string_view rest = text;
  do {
    const std::string question(rest.substr(0, rest.find(';')));
    rest.remove_prefix(std::min(rest.size(), question.size() + 1));
    TRY_ASSIGN(const observe::WhatIf change, observe::parse_what_if(question));
    TRY_ASSIGN(const observe::WhatIfAnswer answer, observe::answer(steps, change));
    all.push_back({question, answer});
  } while (!rest.empty());
  return all;
}

json::object to_json(const Asked& asked) {
  json::object object = {{"what_if", asked.text},
                         {"step_ms", engine::rounded(asked.answer.step_ms, 3)},
                         {"images_per_second", engine::rounded(asked.answer.images_per_second, 1)},
                         {"workers", asked.answer.workers}};
  if (asked.answer.epoch_cost) {
    object["epoch_cost"] = engine::rounded(*asked.answer.epoch_cost, 6);
  }
  return object;
}

std::string cost_text(const observe::WhatIfAnswer& answer) {
  return answer.epoch_cost ? fmt::format("{:.4g}", *answer.epoch_cost) : "";
}

std::string advice_text(const observe::RecordedSteps& steps) {
  const std::optional<observe::Advice> advice = observe::advice(steps);
  if (!advice) {
    return "No number of loading threads, share of the images in memory or worker less would make "
           "a step shorter by 3 %.\n";
  }
  const observe::WhatIfAnswer now = observe::as_recorded(steps);
  std::string text = fmt::format(
      "With {}, a step takes {:.4g} instead of {:.4g} ms ({:.0f} % less)", advice->what,
      advice->answer.step_ms, now.step_ms, 100 * (1 - advice->answer.step_ms / now.step_ms));
  if (now.epoch_cost) {
    text += fmt::format(", and an epoch costs {} instead of {}", cost_text(advice->answer),
                        cost_text(now));
  }
  return text + ".\n";
}

std::string as_text(const observe::RecordedSteps& steps, const std::vector<Asked>& all) {
  std::string out = fmt::format("{:<36} {:>9} {:>10} {:>8}{}\n", "what if", "step, ms", "images/s",
                                "step", all.front().answer.epoch_cost ? "  an epoch costs" : "");
  for (const Asked& asked : all) {
    const observe::WhatIfAnswer& answer = asked.answer;
    const std::string cost = cost_text(answer);
    out += fmt::format("{:<36} {:>9.4g} {:>10.4g} {:>6.0f} %{}\n", asked.text, answer.step_ms,
                       answer.images_per_second, 100 * answer.step_ms / steps.recorded_ms,
                       cost.empty() ? "" : fmt::format("  {:>14}", cost));
  }
  out += fmt::format(
      "The replay of the run as it was gives {:.1f} % of the recorded step; answers "
      "are scaled by that.\n",
      100 * steps.replayed_ms / steps.recorded_ms);
  return out + advice_text(steps);
}

Result<std::string> what_if(const observe::RunFold& run, const ParsedArguments& arguments) {
  TRY_ASSIGN(const observe::RecordedSteps steps, observe::recorded_steps(run));
  TRY_ASSIGN(const std::vector<Asked> all, ask_all(steps, arguments.option("what-if")));
  if (!arguments.has("json")) {
    return as_text(steps, all);
  }
  json::array answers;
  for (const Asked& asked : all) {
    answers.push_back(to_json(asked));
  }
  json::object object = {{"replayed_ms", engine::rounded(steps.replayed_ms, 3)},
                         {"answers", std::move(answers)}};
  if (const std::optional<observe::Advice> advice = observe::advice(steps)) {
    object["advice"] = to_json(Asked{advice->what, advice->answer});
  }
  return engine::json_text(object) + "\n";
}

/// Runs the job of this file with parts of it left out.
int profile_differences(const std::string& job, const ParsedArguments& arguments,
                        Context& context) {
  if (!arguments.positionals.empty()) {
    return context.complain("profile --difference runs a job; it reads no run directory",
                            kExitUsage);
  }
  ParsedArguments of_job;
  of_job.options["config"] = job;
  Result<engine::JobConfig> config = resolve_config(of_job, context);
  if (!config.ok()) {
    return context.complain(config.error());
  }
  engine::DifferenceOptions options;
  options.job = std::move(config).value();
  options.folder = arguments.option("output", "differences");
  options.json = arguments.has("json");
  std::uint64_t measured = options.steps - engine::kWarmUpSteps;
  for (const Result<void>& read : {read_number(arguments, "rounds", options.rounds),
                                   read_number(arguments, "steps", measured)}) {
    if (!read.ok()) {
      return context.complain(read.error());
    }
  }
  options.steps = measured + engine::kWarmUpSteps;
  return context.services.profile_differences(options);
}

}  // namespace

int profile(const ParsedArguments& arguments, Context& context) {
  if (const std::string job = arguments.option("difference"); !job.empty()) {
    return profile_differences(job, arguments, context);
  }
  if (arguments.positionals.size() != 1) {
    return context.complain(
        "profile expects one run directory, such as runs/a, or --difference JOB.toml", kExitUsage);
  }
  Result<std::unique_ptr<observe::RunFollower>> opened =
      observe::RunFollower::open(arguments.positionals.front());
  if (!opened.ok()) {
    return context.complain("profile: " + opened.error().detail, kExitUsage);
  }
  observe::RunFold& run = opened.value()->fold();
  if (!arguments.option("what-if").empty()) {
    const Result<std::string> answers = what_if(run, arguments);
    if (!answers.ok()) {
      return context.complain("profile: " + answers.error().detail, kExitUsage);
    }
    context.out << answers.value();
    return kExitDone;
  }
  context.out << (arguments.has("json") ? engine::json_text(to_json(run)) + "\n" : as_text(run));
  return kExitDone;
}

}  // namespace mayfly::cli
