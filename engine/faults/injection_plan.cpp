#include "engine/faults/injection_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/parse.hpp"
#include "base/try_assign.hpp"

namespace mayfly::engine {
namespace {

constexpr double kTimeMax = 60;       // seconds
constexpr double kSlowMax = 1000;     // times
constexpr double kStopMax = 0.95;     // of the time
constexpr double kStorageMin = 1e3;   // bytes per second
constexpr double kStorageMax = 1e12;  // bytes per second
constexpr double kMomentMax = 1e9;

Error bad_rule(std::string_view rule, std::string_view why) {
  return {Errc::kInvalidInput,
          fmt::format("inject '{}': {}; an example: delay=30ms,worker=1,from=step100,to=step400",
                      rule, why)};
}

/// Parses a number that is followed by this unit.
std::optional<double> number_with(std::string_view text, std::string_view unit, double least,
                                  double most) {
  if (!text.ends_with(unit)) {
    return std::nullopt;
  }
  text.remove_suffix(unit.size());
  return number_in(text, least, most);
}

std::optional<double> seconds_of(std::string_view text, double most) {
  for (const auto& [unit, length] : {std::pair("us", 1e-6), std::pair("ms", 1e-3)}) {
    if (const auto number = number_with(text, unit, 0, most / length)) {
      return *number * length;
    }
  }
  return number_with(text, "s", 0, most);
}

std::optional<InjectionMoment> moment_of(std::string_view text) {
  constexpr std::string_view kStep = "step";
  InjectionMoment moment;
  if (text.starts_with(kStep)) {
    const auto step = number_in<std::uint64_t>(text.substr(kStep.size()), 0,
                                               static_cast<std::uint64_t>(kMomentMax));
    moment.step = step.value_or(0);
    return step ? std::optional(moment) : std::nullopt;
  }
  const std::optional<double> since = seconds_of(text, kMomentMax);
  moment.in_seconds = true;
  moment.seconds = since.value_or(0);
  return since ? std::optional(moment) : std::nullopt;
}

std::optional<double> bytes_per_second_of(std::string_view text) {
  for (const auto& [unit, bytes] :
       {std::pair("kB/s", 1e3), std::pair("MB/s", 1e6), std::pair("GB/s", 1e9)}) {
    if (const auto number = number_with(text, unit, 0, kStorageMax / bytes)) {
      return *number * bytes;
    }
  }
  return std::nullopt;
}

/// Parses a time that is not 0.
std::optional<std::string> set_time(Duration& time, std::string_view name, std::string_view value,
                                    std::string_view example) {
  time = Duration(std::llround(seconds_of(value, kTimeMax).value_or(0) * 1e9));
  return time.count() > 0
             ? std::nullopt
             : std::optional(fmt::format("{} is a time up to 60s, such as {}", name, example));
}

std::optional<std::string> set_slow(InjectionRule& rule, std::string_view value) {
  const auto factor = number_with(value, "x", 1, kSlowMax);
  rule.slow = factor.value_or(1);
  return factor ? std::nullopt
                : std::optional<std::string>("slow is a factor from 1x to 1000x, such as 2.5x");
}

std::optional<std::string> set_stop(InjectionRule& rule, std::string_view value) {
  const auto percent = number_with(value, "%", 0, 100 * kStopMax);
  rule.stop = percent.value_or(0) / 100;
  return rule.stop > 0 ? std::nullopt
                       : std::optional<std::string>("stop is a share up to 95%, such as 50%");
}

std::optional<std::string> set_storage(InjectionRule& rule, std::string_view value) {
  rule.storage = bytes_per_second_of(value).value_or(0);
  return rule.storage >= kStorageMin
             ? std::nullopt
             : std::optional<std::string>("storage is a rate from 1kB/s, such as 20MB/s");
}

struct Effect {
  std::string_view name;
  /// Sets the field. Returns the reason if the value is wrong, or nothing.
  std::optional<std::string> (*set)(InjectionRule& rule, std::string_view value);
};

constexpr std::array<Effect, 6> kEffects = {{
    {"delay", [](InjectionRule& rule,
                 std::string_view value) { return set_time(rule.delay, "delay", value, "30ms"); }},
    {"slow", set_slow},
    {"stop", set_stop},
    {"fetch", [](InjectionRule& rule,
                 std::string_view value) { return set_time(rule.fetch, "fetch", value, "2ms"); }},
    {"storage", set_storage},
    {"prep", [](InjectionRule& rule,
                std::string_view value) { return set_time(rule.prep, "prep", value, "3ms"); }},
}};

std::optional<std::string> set_condition(InjectionRule& rule, std::string_view name,
                                         std::string_view value) {
  if (name == "worker") {
    rule.worker = number_in<std::uint32_t>(value);
    return rule.worker ? std::nullopt : std::optional<std::string>("worker is a number from 0");
  }
  const std::optional<InjectionMoment> moment = moment_of(value);
  if (!moment) {
    return fmt::format("{} is a step or a time, such as step100 or 20s", name);
  }
  (name == "from" ? rule.from : rule.to) = moment;
  return std::nullopt;
}

bool is_after(const InjectionMoment& a, const InjectionMoment& b) {
  return a.in_seconds ? a.seconds > b.seconds : a.step > b.step;
}

/// The error of a rule whose single fields are valid; nothing if there is none.
std::optional<std::string> check_rule(const InjectionRule& rule, int effects) {
  if (effects != 1) {
    return "each rule has one of delay, slow, stop, fetch, storage and prep";
  }
  if (rule.from && rule.to && rule.from->in_seconds != rule.to->in_seconds) {
    return "from and to are both steps or both times";
  }
  if (rule.from && rule.to && is_after(*rule.from, *rule.to)) {
    return "from is after to";
  }
  return std::nullopt;
}

Result<InjectionRule> parse_rule(const std::string_view text) {
  InjectionRule rule;
  int effects = 0;
  std::vector<std::string_view> seen;
  for (const std::string_view field : split(text, ',')) {
    const auto [name, value] = cut(field, '=');
    const auto* const effect = std::ranges::find(kEffects, name, &Effect::name);
    const bool is_effect = effect != kEffects.end();
    if (!is_effect && name != "worker" && name != "from" && name != "to") {
      return bad_rule(
          text,
          fmt::format(
              "'{}' is not one of delay, slow, stop, fetch, storage, prep, worker, from, to with =",
              field));
    }
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
      return bad_rule(text, fmt::format("{} is given twice", name));
    }
    seen.push_back(name);
    effects += is_effect ? 1 : 0;
    const std::optional<std::string> complaint =
        is_effect ? effect->set(rule, value) : set_condition(rule, name, value);
    if (complaint) {
      return bad_rule(text, *complaint);
    }
  }
  const std::optional<std::string> complaint = check_rule(rule, effects);
  return complaint ? Result<InjectionRule>(bad_rule(text, *complaint))
                   : Result<InjectionRule>(rule);
}

bool holds(const InjectionRule& rule, std::uint64_t step, double seconds) {
  const auto has_come = [&](const InjectionMoment& moment) {
    return moment.in_seconds ? seconds >= moment.seconds : step >= moment.step;
  };
  const auto is_over = [&](const InjectionMoment& moment) {
    return moment.in_seconds ? seconds > moment.seconds : step > moment.step;
  };
  return (!rule.from || has_come(*rule.from)) && (!rule.to || !is_over(*rule.to));
}

std::string to_text(const InjectionMoment& moment) {
  return moment.in_seconds ? fmt::format("{}s", moment.seconds)
                           : fmt::format("step{}", moment.step);
}

}  // namespace

Result<std::vector<InjectionRule>> parse_injections(const std::string& text) {
  std::vector<InjectionRule> rules;
  for (const std::string_view part : split(text, ';')) {
    if (part.empty()) {
      continue;
    }
    TRY_ASSIGN(InjectionRule rule, parse_rule(part));
    rules.push_back(rule);
  }
  return rules;
}

std::vector<InjectionRule> injections_of_worker(const std::vector<InjectionRule>& rules,
                                                std::uint32_t worker) {
  std::vector<InjectionRule> own;
  std::copy_if(
      rules.begin(), rules.end(), std::back_inserter(own),
      [worker](const InjectionRule& rule) { return rule.worker.value_or(worker) == worker; });
  return own;
}

InjectedEffects effects_at(const std::vector<InjectionRule>& rules, std::uint64_t step,
                           double seconds) {
  InjectedEffects effects;
  for (const InjectionRule& rule : rules) {
    if (holds(rule, step, seconds)) {
      effects.delay += rule.delay;
      effects.slow *= rule.slow;
      effects.stop = std::max(effects.stop, rule.stop);
      effects.fetch += rule.fetch;
      const bool is_lower = effects.storage == 0 || rule.storage < effects.storage;
      effects.storage = rule.storage > 0 && is_lower ? rule.storage : effects.storage;
      effects.prep += rule.prep;
    }
  }
  return effects;
}

std::string to_text(const InjectionRule& rule) {
  std::string text = rule.delay.count() > 0   ? fmt::format("delay={}ms", to_ms(rule.delay))
                     : rule.stop > 0          ? fmt::format("stop={}%", 100 * rule.stop)
                     : rule.fetch.count() > 0 ? fmt::format("fetch={}ms", to_ms(rule.fetch))
                     : rule.storage > 0       ? fmt::format("storage={}MB/s", rule.storage / 1e6)
                     : rule.prep.count() > 0  ? fmt::format("prep={}ms", to_ms(rule.prep))
                                              : fmt::format("slow={}x", rule.slow);
  text += rule.worker ? fmt::format(",worker={}", *rule.worker) : "";
  text += rule.from ? ",from=" + to_text(*rule.from) : "";
  text += rule.to ? ",to=" + to_text(*rule.to) : "";
  return text;
}

}  // namespace mayfly::engine
