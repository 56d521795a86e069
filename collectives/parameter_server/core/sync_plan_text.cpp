// Phases as users write them.

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.hpp"
#include "base/parse.hpp"
#include "base/try_assign.hpp"
#include "collectives/parameter_server/core/sync_plan.hpp"

namespace mayfly::parameter_server {
namespace {

constexpr std::uint32_t kStalenessMax = 1'000'000;
constexpr std::uint32_t kWorkersMax = 100'000;
constexpr std::uint64_t kStepsMax = std::uint64_t{1} << 48;

/// Not negative.
std::optional<double> parse_real(std::string_view text) {
  return number_in<double>(text, 0, std::numeric_limits<double>::max());
}

Error wrong(std::string text) {
  return {Errc::kInvalidInput, std::move(text)};
}

Error unknown_policy(std::string_view text) {
  return wrong(std::string("'").append(text) +
               "' is not bsp, asp, ssp:S or backup:N-of-M, perhaps with an amount as 6.25%, "
               "400steps or 51200samples");
}

bool take_suffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) {
    return false;
  }
  text.remove_suffix(suffix.size());
  return true;
}

/// In steps; nothing if the text is not an amount.
std::optional<double> parse_amount(std::string_view text, const JobLength& length) {
  double unit = 0;
  if (take_suffix(text, "%")) {
    unit = static_cast<double>(length.last_step) / 100;
  } else if (take_suffix(text, "steps")) {
    unit = 1;
  } else if (take_suffix(text, "samples")) {
    unit = 1 / static_cast<double>(length.samples_per_step);
  } else {
    return std::nullopt;
  }
  const std::optional<double> number = parse_real(text);
  const bool is_amount = number && *number > 0 && std::isfinite(*number * unit);
  return is_amount ? std::optional(*number * unit) : std::nullopt;
}

/// At least one slice, at most as many as there are.
std::uint64_t whole_steps(double steps, std::uint64_t most) {
  const double rounded = std::max(1.0, std::round(steps));
  return rounded >= static_cast<double>(most) ? most : static_cast<std::uint64_t>(rounded);
}

/// A phase between two steps, before its slices are numbered.
struct Stretch {
  SyncPolicy policy;
  PhaseSettings settings;
  std::optional<double> steps;  // as the user gave it
  std::optional<std::uint64_t> batch;
  std::uint64_t first = 0;  // steps that are done before it
  std::uint64_t last = 0;
};

Result<void> apply(Stretch& phase, std::string_view name, std::string_view value) {
  PhaseSettings& settings = phase.settings;
  const auto check = [](bool is_right, const char* complaint) {
    return is_right ? Result<void>() : Result<void>(wrong(complaint));
  };
  if (name == "lr") {
    const bool is_factor = take_suffix(value, "x");
    settings.rate = parse_real(value).value_or(0);
    return check(is_factor && settings.rate > 0,
                 "lr is a factor of the job's learning rate, such as 0.5x");
  }
  if (name == "lr-rule") {
    const Result<RateRule> rule = parse_rate_rule(value);
    if (!rule.ok()) {
      return wrong("lr-rule " + rule.error().detail);
    }
    settings.rule = rule.value();
    return {};
  }
  if (name == "momentum") {
    settings.momentum = parse_real(value);
    return check(settings.momentum && *settings.momentum < 1,
                 "momentum is a number from 0 to below 1");
  }
  if (name == "weight-decay") {
    settings.weight_decay = parse_real(value);
    return check(settings.weight_decay.has_value(), "weight-decay is a number from 0 on");
  }
  if (name == "checkpoint-every") {
    settings.checkpoint_every = number_in<std::uint64_t>(value, 0, kStepsMax);
    return check(settings.checkpoint_every.has_value(), "checkpoint-every is a number of steps");
  }
  if (name == "batch") {
    phase.batch = number_in<std::uint64_t>(value, 0, kStepsMax);
    return check(phase.batch && *phase.batch > 0, "batch is a number of samples");
  }
  std::string known;
  for (const std::string& setting : phase_setting_names()) {
    known += (known.empty() ? "" : ", ") + setting;
  }
  return wrong(std::string("unknown setting '").append(name) + "' (known: " + known + ")");
}

/// "NAME=VALUE,..."
Result<void> apply_all(Stretch& phase, std::string_view text) {
  for (const std::string_view entry : split(text, ',')) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos) {
      return wrong(std::string("'").append(entry) + "' is not NAME=VALUE");
    }
    std::string name(entry.substr(0, equals));
    std::replace(name.begin(), name.end(), '_', '-');
    TRY(apply(phase, name, entry.substr(equals + 1)));
  }
  return {};
}

Result<Stretch> parse_phase(std::string_view text, const JobLength& length) {
  Stretch phase;
  if (const std::size_t brace = text.find('{'); brace != std::string_view::npos) {
    if (!text.ends_with('}')) {
      return wrong("'}' is missing");
    }
    const std::string_view inside = text.substr(brace + 1, text.size() - brace - 2);
    TRY(apply_all(phase, inside));
    text = text.substr(0, brace);
  }
  if (const std::size_t colon = text.rfind(':'); colon != std::string_view::npos) {
    phase.steps = parse_amount(text.substr(colon + 1), length);
  }
  TRY_ASSIGN(phase.policy, parse_sync_policy(phase.steps ? text.substr(0, text.rfind(':')) : text));
  return phase;
}

/// Up to the next comma that is not inside braces.
std::string_view next_phase(std::string_view text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    depth += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
    if (text[i] == ',' && depth == 0) {
      return text.substr(0, i);
    }
  }
  return text;
}

Result<std::vector<Stretch>> parse_stretches(std::string_view text, const JobLength& length) {
  std::vector<Stretch> all;
  for (bool is_last = false; !is_last;) {
    const std::string_view own = next_phase(text);
    is_last = own.size() == text.size();
    const std::string place =
        "phase " + std::to_string(all.size() + 1) + " '" + std::string(own) + "'";
    Result<Stretch> phase = parse_phase(own, length);
    if (!phase.ok()) {
      return wrong(place + ": " + phase.error().detail);
    }
    if (!is_last && !phase.value().steps) {
      return wrong(place + " is not the last one and has no length");
    }
    Stretch fresh = std::move(phase).value();
    fresh.first = all.empty() ? 0 : all.back().last;
    const std::uint64_t left = length.last_step - fresh.first;
    fresh.last = fresh.first + (is_last ? left : whole_steps(*fresh.steps, left));
    all.push_back(std::move(fresh));
    text = is_last ? std::string_view{} : text.substr(own.size() + 1);
  }
  return all;
}

/// If the job begins with a phase without rounds, a phase with rounds is put before it, or the rate
/// rises at each beginning of such a phase.
void warm_up(std::vector<Stretch>& all, const WarmUp& how) {
  if (how.steps == 0) {
    return;
  }
  if (how.by_bsp) {
    Stretch& first = all.front();
    if (is_stream(first.policy)) {
      Stretch before = first;
      before.policy = SyncPolicy{};
      before.batch.reset();
      before.settings.rate = 1;
      before.settings.rule.reset();
      before.last = std::min(first.last, how.steps);
      first.first = before.last;
      all.insert(all.begin(), std::move(before));
    }
    return;
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool goes_on = i > 0 && is_stream(all[i - 1].policy);
    if (is_stream(all[i].policy)) {
      PhaseSettings& settings = all[i].settings;
      settings.ramp_steps = how.steps;
      settings.ramp_first = goes_on ? all[i - 1].settings.ramp_first : all[i].first + 1;
    }
  }
}

/// The slices of a round and of a step, from the batch of the phase.
Result<void> cut_steps(SyncPhase& phase, const Stretch& stretch, const JobLength& length) {
  const std::uint32_t microbatches =
      length.microbatches > 0 ? length.microbatches : length.slices_per_step;
  const bool is_backup = stretch.policy.kind == SyncKind::kBackup;
  const bool has_rounds = !is_stream(stretch.policy);
  phase.slices_per_step = length.slices_per_step;
  phase.round = is_backup ? stretch.policy.needed : has_rounds ? length.slices_per_step : 1;
  if (stretch.batch) {
    const std::uint64_t microbatch = length.samples_per_step / microbatches;
    const std::uint64_t batch = *stretch.batch;
    if (batch > length.samples_per_step || length.samples_per_step % batch != 0 ||
        batch % microbatch != 0) {
      return wrong("batch " + std::to_string(batch) + " is not a part of the global batch " +
                   std::to_string(length.samples_per_step) + " in whole microbatches of " +
                   std::to_string(microbatch));
    }
    const auto parts = static_cast<std::uint32_t>(batch / microbatch);
    if (is_backup && parts < phase.round) {
      return wrong("batch " + std::to_string(batch) + " has fewer microbatches than slices");
    }
    phase.round = std::min(phase.round, parts);
    phase.slices_per_step =
        static_cast<std::uint32_t>(length.samples_per_step / batch) * phase.round;
  }
  if (phase.slices_per_step % phase.round != 0) {
    return wrong("it needs a step of " + std::to_string(phase.round) +
                 " slices or a multiple, not of " + std::to_string(phase.slices_per_step));
  }
  return {};
}

}  // namespace

const std::vector<std::string>& phase_setting_names() {
  static const std::vector<std::string> names = {"lr",           "lr-rule",          "momentum",
                                                 "weight-decay", "checkpoint-every", "batch"};
  return names;
}

Result<SyncPolicy> parse_sync_policy(std::string_view text) {
  if (text == "bsp") {
    return SyncPolicy{};
  }
  if (text == "asp") {
    return SyncPolicy{.kind = SyncKind::kAsp};
  }
  if (text.starts_with("ssp:")) {
    const auto staleness = number_in<std::uint32_t>(text.substr(4), 0, kStalenessMax);
    return staleness ? Result<SyncPolicy>(SyncPolicy{SyncKind::kSsp, *staleness, 0, 0})
                     : Result<SyncPolicy>(unknown_policy(text));
  }
  constexpr std::string_view kBackup = "backup:";
  constexpr std::string_view kOf = "-of-";
  const std::size_t of = text.find(kOf);
  if (!text.starts_with(kBackup) || of == std::string_view::npos) {
    return unknown_policy(text);
  }
  const auto needed =
      number_in<std::uint32_t>(text.substr(kBackup.size(), of - kBackup.size()), 0, kWorkersMax);
  const auto workers = number_in<std::uint32_t>(text.substr(of + kOf.size()), 1, kWorkersMax);
  if (!needed || !workers) {
    return unknown_policy(text);
  }
  if (*needed < 1 || *needed > *workers) {
    return wrong("an update of backup:N-of-M is the mean of N of M slices, so N is from 1 to " +
                 std::to_string(*workers) + ", not " + std::to_string(*needed));
  }
  return SyncPolicy{SyncKind::kBackup, 0, *needed, *workers};
}

std::string to_text(const SyncPolicy& policy) {
  switch (policy.kind) {
    case SyncKind::kBsp: return "bsp";
    case SyncKind::kAsp: return "asp";
    case SyncKind::kSsp: return "ssp:" + std::to_string(policy.staleness);
    case SyncKind::kBackup:
      return "backup:" + std::to_string(policy.needed) + "-of-" + std::to_string(policy.workers);
  }
  UNREACHABLE("every policy has a text");
}

Result<SyncPlan> parse_phases(std::string_view text, const JobLength& length) {
  TRY_ASSIGN(std::vector<Stretch> stretches, parse_stretches(text, length));
  warm_up(stretches, length.warm_up);
  std::vector<SyncPhase> phases;
  std::uint64_t slice = 0;
  for (std::size_t i = 0; i < stretches.size(); ++i) {
    const Stretch& stretch = stretches[i];
    SyncPhase phase;
    phase.policy = stretch.policy;
    phase.settings = stretch.settings;
    if (Result<void> cut = cut_steps(phase, stretch, length); !cut.ok()) {
      return wrong("phase " + std::to_string(i + 1) + " '" + to_text(stretch.policy) +
                   "': " + cut.error().detail);
    }
    // Steps that a resumed job has done keep their numbers.
    const std::uint64_t begin = std::clamp(length.first_step, stretch.first, stretch.last);
    phase.first = slice + (begin - stretch.first) * phase.slices_per_step;
    phase.last = slice + (stretch.last - stretch.first) * phase.slices_per_step;
    phase.first_step = begin;
    slice = phase.last;
    if (phase.first < phase.last) {
      phases.push_back(phase);
    }
  }
  if (phases.empty()) {
    return wrong("the job's last step is committed already");
  }
  return SyncPlan(std::move(phases), length.slices_per_step);
}

Result<WarmUp> parse_warm_up(std::string_view text, const JobLength& length) {
  if (text.empty()) {
    return WarmUp{};
  }
  const std::size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const std::optional<double> steps =
      colon == std::string_view::npos ? std::nullopt : parse_amount(text.substr(colon + 1), length);
  if (!steps || (kind != "bsp" && kind != "ramp")) {
    return wrong(std::string("'").append(text) +
                 "' is not bsp:AMOUNT or ramp:AMOUNT with an amount as 2%, 100steps or "
                 "12800samples");
  }
  return WarmUp{kind == "bsp", whole_steps(*steps, length.last_step)};
}

Result<RateRule> parse_rate_rule(std::string_view text) {
  for (const auto& [name, rule] :
       {std::pair("linear", RateRule::kLinear), std::pair("sqrt", RateRule::kSqrt),
        std::pair("fixed", RateRule::kFixed), std::pair("live-linear", RateRule::kLiveLinear),
        std::pair("live-sqrt", RateRule::kLiveSqrt)}) {
    if (text == name) {
      return rule;
    }
  }
  return wrong(std::string("'").append(text) +
               "' is not linear, sqrt, fixed, live-linear or live-sqrt");
}

}  // namespace mayfly::parameter_server
