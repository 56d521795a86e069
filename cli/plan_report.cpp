#include "cli/plan_report.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <boost/json.hpp>

#include "base/time.hpp"
#include "cli/cli.hpp"
#include "engine/run/record_json.hpp"
#include "planner/search/amounts.hpp"

namespace mayfly::cli {
namespace {

namespace json = boost::json;

using planner::Alternative;
using planner::Candidate;
using planner::Row;
using planner::Spread;
using planner::TimeUnit;

/// Whether any of the row's simulated jobs finishes; otherwise it has no times.
bool finishes(const Row& row) {
  return row.is_simulated && row.summary.finished.value > 0;
}

/// All times of a report are in the unit that suits its first row.
TimeUnit unit_of(const PlanReport& report) {
  const Row& first = report.answer.rows.front();
  return planner::time_unit_for(finishes(first) ? first.summary.time_s.mean : first.undisturbed_s);
}

std::string time_cell(const TimeUnit& unit, const Row& row) {
  if (!finishes(row)) {
    return "never";
  }
  const Spread& time = row.summary.time_s;
  return fmt::format("{} ({}-{})", time_in(unit, time.mean), time_in(unit, time.low),
                     time_in(unit, time.high));
}

std::string cost_cell(const Row& row) {
  const Spread& cost = row.summary.cost;
  return fmt::format("{} ({}-{})", planner::money_words(cost.mean), planner::money_words(cost.low),
                     planner::money_words(cost.high));
}

bool is_extrapolated(const PlanReport& report, const Row& row) {
  return report.workers_measured_most > 0 && row.candidate.workers > report.workers_measured_most;
}

/// The text of a row about the budget, if the plan has one.
std::string stopped_text(const Row& row) {
  const double share = row.summary.stopped.value;
  return share > 0 ? fmt::format(" (stopped by the budget: {:.1f} %)", 100 * share) : "";
}

std::string row_text(const planner::Market& market, const PlanReport& report, const Row& row,
                     const std::string& rank) {
  const std::string accuracy = row.accuracy ? fmt::format(", accuracy {:.3f}", *row.accuracy) : "";
  const std::string name = describe(market, row.candidate) + accuracy +
                           (is_extrapolated(report, row) ? " (more workers than measured)" : "") +
                           stopped_text(row);
  const std::string obstacle = row.obstacle == planner::Obstacle::kNone
                                   ? ""
                                   : fmt::format("  [{}]", to_string(row.obstacle));
  const TimeUnit unit = unit_of(report);
  if (!row.is_simulated) {
    return fmt::format("{:>4}    {:<19} {:<21} {:>5} {:>6}  {}{}\n", rank,
                       time_in(unit, row.undisturbed_s) + " or more", "-", "0", "-", name,
                       obstacle);
  }
  return fmt::format("{:>4} {}  {:<19} {:<21} {:>5.3f} {:>6.2f}  {}{}\n", rank,
                     row.is_on_front ? "*" : " ", time_cell(unit, row), cost_cell(row),
                     row.summary.reached.value, row.summary.losses, name, obstacle);
}

std::string table_text(const planner::Market& market, const PlanReport& report,
                       const planner::Answer& answer, std::size_t rows) {
  std::string out = fmt::format("        {:<19} {:<21}  kept   lost  plan\n",
                                fmt::format("{} (90 %)", unit_of(report).name), "cost (90 %)");
  std::size_t shown = 0;
  for (std::size_t i = 0; i < answer.rows.size(); ++i) {
    if (i < rows) {
      out += row_text(market, report, answer.rows[i], std::to_string(i + 1));
      ++shown;
    } else if (answer.rows[i].is_on_front) {
      out += row_text(market, report, answer.rows[i], std::to_string(i + 1));
    }
  }
  if (shown < answer.rows.size()) {
    out += fmt::format("        ... of {} plans; * none is better in every respect\n",
                       answer.rows.size());
  }
  return out;
}

std::string alternatives_text(const TimeUnit& unit, const std::string& title,
                              const std::vector<Alternative>& list) {
  if (list.empty()) {
    return {};
  }
  std::string out = title + "\n";
  for (const Alternative& one : list) {
    out += fmt::format("        {:<19} {:<21} {:>5.3f} {:>6.2f}  {}\n", time_cell(unit, one.row),
                       cost_cell(one.row), one.row.summary.reached.value, one.row.summary.losses,
                       one.label);
  }
  return out;
}

std::string checkpoints_text(const planner::CheckpointAdvice& advice) {
  return fmt::format(
             "checkpoints: {}{} between losses of all workers; best interval {:.1f} min by "
             "simulation, {:.1f} by Young, {:.1f} by Daly",
             advice.is_bound ? "at least " : "", planner::time_words(advice.mean_to_loss_s),
             advice.best_s / 60, advice.young_s / 60, advice.daly_s / 60) +
         (advice.chosen_s ? fmt::format("; the plan's is {:.1f} min\n", *advice.chosen_s / 60)
                          : "\n");
}

/// The rows of the plan in a changed scenario.
std::string changed_text(const planner::Market& market, const PlanReport& report,
                         std::size_t rows) {
  std::string out = fmt::format("if {}:\n", report.scenario);
  const std::vector<Row>& before = report.answer.rows;
  for (std::size_t i = 0; i < std::min(rows, report.changed->rows.size()); ++i) {
    const Row& row = report.changed->rows[i];
    const auto was = std::ranges::find(before, row.candidate, &Row::candidate);
    std::string difference;
    if (was != before.end() && finishes(*was) && finishes(row)) {
      difference =
          fmt::format("        was {}: time {:+.1f} %{}\n", was - before.begin() + 1,
                      100 * (row.summary.time_s.mean / was->summary.time_s.mean - 1),
                      was->summary.cost.mean > 0
                          ? fmt::format(", cost {:+.1f} %",
                                        100 * (row.summary.cost.mean / was->summary.cost.mean - 1))
                          : "");
    }
    out += row_text(market, report, row, std::to_string(i + 1)) + difference;
  }
  return out;
}

std::string none_text(const planner::Market& market, const PlanReport& report) {
  const Row& nearest = report.answer.rows.front();
  return fmt::format(
      "No plan keeps the limits with probability {:g}. The nearest, {}, keeps them with {:.3f}; "
      "what it lacks is {}.\n",
      report.question.probability, describe(market, nearest.candidate),
      nearest.summary.reached.value, to_string(nearest.obstacle));
}

json::object spread_json(const Spread& spread) {
  return {{"mean", spread.mean},
          {"error", spread.error},
          {"low", spread.low},
          {"median", spread.median},
          {"high", spread.high}};
}

json::object share_json(const planner::Share& share) {
  return {{"value", share.value}, {"error", share.error}};
}

json::object row_json(const planner::Market& market, const PlanReport& report, const Row& row) {
  const Candidate& candidate = row.candidate;
  json::array offers;
  for (const std::size_t offer : candidate.offers) {
    offers.push_back(json::value(cloud_hooks::to_string(market.offers[offer].offer).c_str()));
  }
  json::array composition;
  for (const std::uint32_t count : candidate.composition) {
    composition.push_back(count);
  }
  json::object object = {{"plan", describe(market, candidate)},
                         {"offers", std::move(offers)},
                         {"workers", candidate.workers},
                         {"composition", std::move(composition)},
                         {"spares", candidate.spares},
                         {"on_demand_floor", candidate.on_demand_floor},
                         {"falls_back", candidate.falls_back},
                         {"parameter_servers", json::value(candidate.serving_words.c_str())},
                         {"checkpoint_every_s", candidate.checkpoint_every_s},
                         {"undisturbed_s", row.undisturbed_s},
                         {"simulated", row.is_simulated},
                         {"keeps_limits", row.keeps_limits},
                         {"on_front", row.is_on_front},
                         {"extrapolated", is_extrapolated(report, row)},
                         {"obstacle", to_string(row.obstacle)}};
  if (row.accuracy) {
    object["accuracy"] = *row.accuracy;
  }
  if (row.is_simulated) {
    const planner::Summary& summary = row.summary;
    object["paths"] = summary.paths;
    object["time_s"] = spread_json(summary.time_s);
    object["cost"] = spread_json(summary.cost);
    object["finished"] = share_json(summary.finished);
    object["in_time"] = share_json(summary.in_time);
    object["in_budget"] = share_json(summary.in_budget);
    object["kept"] = share_json(summary.reached);
    object["stopped_by_budget"] = share_json(summary.stopped);
    object["losses"] = summary.losses;
    object["all_lost"] = summary.all_lost;
    object["refusals"] = summary.refusals;
    object["starting_s"] = summary.starting_s;
    object["missing_s"] = summary.missing_s;
    object["stock_out_s"] = summary.stock_out_s;
    object["stopped_s"] = summary.stopped_s;
    object["redone_s"] = summary.redone_s;
  }
  return object;
}

json::array rows_json(const planner::Market& market, const PlanReport& report,
                      const std::vector<Row>& rows) {
  json::array list;
  for (const Row& row : rows) {
    list.push_back(row_json(market, report, row));
  }
  return list;
}

json::array alternatives_json(const planner::Market& market, const PlanReport& report,
                              const std::vector<Alternative>& alternatives) {
  json::array list;
  for (const Alternative& one : alternatives) {
    json::object object = row_json(market, report, one.row);
    object["label"] = one.label;
    list.push_back(std::move(object));
  }
  return list;
}

json::array texts_json(const std::vector<std::string>& texts) {
  json::array list;
  for (const std::string& text : texts) {
    list.push_back(json::value(text.c_str()));
  }
  return list;
}

void add_advice(const planner::Market& market, const PlanReport& report, json::object& object) {
  const planner::Advice& advice = *report.advice;
  object["reason"] = advice.reason;
  object["changes"] = texts_json(advice.changes);
  object["zones"] = alternatives_json(market, report, advice.zones);
  object["zones_differ"] = advice.zones_differ;
  object["on_demand"] = alternatives_json(market, report, advice.on_demand);
  object["spares"] = alternatives_json(market, report, advice.spares);
  object["spares_worth"] = advice.spares_worth;
  object["hours"] = alternatives_json(market, report, advice.hours);
  if (advice.checkpoints) {
    const planner::CheckpointAdvice& checkpoints = *advice.checkpoints;
    object["checkpoints"] = {{"mean_to_loss_of_all_s", checkpoints.mean_to_loss_s},
                             {"is_lower_bound", checkpoints.is_bound},
                             {"young_s", checkpoints.young_s},
                             {"daly_s", checkpoints.daly_s},
                             {"best_s", checkpoints.best_s},
                             {"chosen_s", engine::value_of(checkpoints.chosen_s)},
                             {"tried", alternatives_json(market, report, checkpoints.tried)}};
  }
}

}  // namespace

std::string plan_text(const planner::Market& market, const PlanReport& report, std::size_t rows) {
  std::string out =
      fmt::format("{}; {} offer{}, prices of {}, calibration of {}; {} paths, seed {}\n",
                  report.job, report.offers, report.offers == 1 ? "" : "s", report.priced,
                  report.calibrated, report.answer.paths, report.question.seed);
  for (const LeftOut& one : report.left_out) {
    out += fmt::format("not planned with: {}: {}\n", one.offer, one.reason);
  }
  for (const std::string& warning : report.warnings) {
    out += "warning: " + warning + "\n";
  }
  out += table_text(market, report, report.answer, rows);
  if (report.changed) {
    out += changed_text(market, report, rows);
  }
  if (!report.advice) {
    return out + none_text(market, report);
  }
  const planner::Advice& advice = *report.advice;
  const TimeUnit unit = unit_of(report);
  out += alternatives_text(unit, "zones", advice.zones);
  out += alternatives_text(unit, "on demand", advice.on_demand);
  out += alternatives_text(unit, "spares", advice.spares);
  out += alternatives_text(unit, "hour of launch", advice.hours);
  if (advice.checkpoints) {
    out += checkpoints_text(*advice.checkpoints);
  }
  out += advice.reason + "\n";
  for (const std::string& sentence : {advice.zones_differ, advice.spares_worth}) {
    out += sentence.empty() ? "" : sentence + "\n";
  }
  for (const std::string& change : advice.changes) {
    out += change + "\n";
  }
  return out;
}

std::string plan_json(const planner::Market& market, const PlanReport& report) {
  const planner::Question& question = report.question;
  json::object object = {
      {"job", report.job},
      {"goal", question.goal == planner::Goal::kCheapest ? "cheapest" : "fastest"},
      {"probability", question.probability},
      {"seed", question.seed},
      {"paths", report.answer.paths},
      {"priced", report.priced},
      {"calibrated", report.calibrated}};
  object["deadline_s"] = question.deadline_s ? json::value(*question.deadline_s) : json::value();
  object["budget"] = question.budget ? json::value(*question.budget) : json::value();
  json::array left_out;
  for (const LeftOut& one : report.left_out) {
    left_out.push_back({{"offer", one.offer}, {"reason", one.reason}});
  }
  object["left_out"] = std::move(left_out);
  object["warnings"] = texts_json(report.warnings);
  const Row* chosen = report.answer.chosen();
  object["chosen"] = chosen ? json::value(row_json(market, report, *chosen)) : json::value();
  object["rows"] = rows_json(market, report, report.answer.rows);
  if (report.advice) {
    add_advice(market, report, object);
  }
  if (report.changed) {
    object["what_if"] = {{"change", report.scenario},
                         {"rows", rows_json(market, report, report.changed->rows)}};
  }
  return engine::json_text(object) + "\n";
}

}  // namespace mayfly::cli
