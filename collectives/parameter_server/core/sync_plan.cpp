#include "collectives/parameter_server/core/sync_plan.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/check.hpp"

namespace mayfly::parameter_server {
namespace {

constexpr std::uint32_t kStalenessMax = 1'000'000;
constexpr std::uint32_t kWorkersMax = 100'000;

std::optional<std::uint32_t> parse_number(std::string_view text, std::uint32_t max) {
  std::uint32_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool fits = failure == std::errc{} && end == text.data() + text.size() && number <= max;
  return fits ? std::optional(number) : std::nullopt;
}

Error unknown_policy(std::string_view text) {
  return {Errc::kInvalidInput,
          std::string("'").append(text) + "' is not bsp, asp, ssp:S or backup:N-of-M"};
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
  double number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = failure == std::errc{} && end == text.data() + text.size() && number > 0;
  return is_number && std::isfinite(number * unit) ? std::optional(number * unit) : std::nullopt;
}

struct PhaseText {
  SyncPolicy policy;
  std::optional<double> steps;
};

Result<PhaseText> parse_phase(std::string_view text, const JobLength& length) {
  PhaseText phase;
  const std::size_t colon = text.rfind(':');
  if (colon != std::string_view::npos) {
    phase.steps = parse_amount(text.substr(colon + 1), length);
  }
  Result<SyncPolicy> policy = parse_sync_policy(phase.steps ? text.substr(0, colon) : text);
  if (!policy.ok()) {
    return Error{Errc::kInvalidInput,
                 "phase '" + std::string(text) + "': " + policy.error().detail +
                     ", perhaps with an amount as 6.25%, 400steps or 51200samples"};
  }
  phase.policy = policy.value();
  return phase;
}

}  // namespace

Result<SyncPolicy> parse_sync_policy(std::string_view text) {
  if (text == "bsp") {
    return SyncPolicy{};
  }
  if (text == "asp") {
    return SyncPolicy{.kind = SyncKind::kAsp};
  }
  if (text.starts_with("ssp:")) {
    const auto staleness = parse_number(text.substr(4), kStalenessMax);
    return staleness ? Result<SyncPolicy>(SyncPolicy{SyncKind::kSsp, *staleness, 0, 0})
                     : Result<SyncPolicy>(unknown_policy(text));
  }
  constexpr std::string_view kBackup = "backup:";
  constexpr std::string_view kOf = "-of-";
  const std::size_t of = text.find(kOf);
  if (!text.starts_with(kBackup) || of == std::string_view::npos) {
    return unknown_policy(text);
  }
  const auto needed = parse_number(text.substr(kBackup.size(), of - kBackup.size()), kWorkersMax);
  const auto workers = parse_number(text.substr(of + kOf.size()), kWorkersMax);
  if (!needed || !workers || *needed < 1 || *needed > *workers) {
    return unknown_policy(text);
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

SyncPlan::SyncPlan(std::vector<SyncPhase> phases, std::uint32_t slices_per_step)
    : phases_(std::move(phases)), slices_per_step_(slices_per_step) {
  ENSURE(!phases_.empty() && slices_per_step_ > 0, "a job has phases, and steps have slices");
  for (std::size_t i = 0; i < phases_.size(); ++i) {
    ENSURE(phases_[i].first < phases_[i].last, "no phase is empty");
    ENSURE(i == 0 || phases_[i].first == phases_[i - 1].last, "phases follow each other");
    ENSURE(phases_[i].first % slices_per_step_ == 0 && phases_[i].last % slices_per_step_ == 0,
           "phases are made of whole steps");
    ENSURE(phases_[i].policy.kind != SyncKind::kBackup ||
               slices_per_step_ % phases_[i].policy.needed == 0,
           "a step is made of whole rounds");
  }
}

SyncPlan SyncPlan::cut_at(const std::set<std::uint64_t>& slices) const {
  std::vector<SyncPhase> cut;
  for (const SyncPhase& phase : phases_) {
    for (std::uint64_t first = phase.first; first < phase.last;) {
      const auto border = slices.upper_bound(first);
      const std::uint64_t last =
          border == slices.end() ? phase.last : std::min(*border, phase.last);
      cut.push_back({phase.policy, first, last});
      first = last;
    }
  }
  return SyncPlan(std::move(cut), slices_per_step_);
}

const SyncPhase& SyncPlan::phase_of(std::uint64_t slice) const {
  for (const SyncPhase& phase : phases_) {
    if (slice >= phase.first && slice < phase.last) {
      return phase;
    }
  }
  UNREACHABLE("only slices of the job have a phase");
}

std::uint64_t SyncPlan::version_at(std::uint64_t slice) const {
  std::uint64_t version = 0;
  for (const SyncPhase& phase : phases_) {
    const std::uint64_t last = std::min(slice, phase.last);
    if (last <= phase.first) {
      break;
    }
    const std::uint64_t count = last - phase.first;
    switch (phase.policy.kind) {
      case SyncKind::kBsp: version += count / slices_per_step_; break;
      case SyncKind::kAsp:
      case SyncKind::kSsp: version += count; break;
      case SyncKind::kBackup:
        version += (count + phase.policy.needed - 1) / phase.policy.needed;
        break;
    }
  }
  return version;
}

Result<SyncPlan> parse_phases(std::string_view text, const JobLength& length) {
  std::vector<SyncPhase> phases;
  std::uint64_t first = 0;  // step
  for (bool is_last = false; !is_last;) {
    const std::size_t comma = text.find(',');
    is_last = comma == std::string_view::npos;
    Result<PhaseText> phase = parse_phase(text.substr(0, comma), length);
    if (!phase.ok()) {
      return std::move(phase).error();
    }
    if (!is_last && !phase.value().steps) {
      return Error{Errc::kInvalidInput,
                   "phase '" + std::string(text.substr(0, comma)) +
                       "' is not the last one and does not say how long it is"};
    }
    const double asked = std::max(1.0, std::round(phase.value().steps.value_or(0)));
    const auto left = static_cast<double>(length.last_step - first);
    const std::uint64_t last =
        is_last || asked >= left ? length.last_step : first + static_cast<std::uint64_t>(asked);
    const SyncPolicy& policy = phase.value().policy;
    if (policy.kind == SyncKind::kBackup && length.slices_per_step % policy.needed != 0) {
      return Error{Errc::kInvalidInput, "phase '" + to_text(policy) + "' needs a step of " +
                                            std::to_string(policy.needed) +
                                            " slices or a multiple, not of " +
                                            std::to_string(length.slices_per_step)};
    }
    const std::uint64_t begin = std::max(first, length.first_step);
    if (begin < last) {
      phases.push_back({policy, begin * length.slices_per_step, last * length.slices_per_step});
    }
    first = last;
    text = is_last ? std::string_view{} : text.substr(comma + 1);
  }
  if (phases.empty()) {
    return Error{Errc::kInvalidInput, "the job's last step is committed already"};
  }
  return SyncPlan(std::move(phases), length.slices_per_step);
}

Result<RateRule> parse_rate_rule(std::string_view text) {
  if (text == "linear") {
    return RateRule::kLinear;
  }
  if (text == "sqrt") {
    return RateRule::kSqrt;
  }
  if (text == "fixed") {
    return RateRule::kFixed;
  }
  return Error{Errc::kInvalidInput,
               std::string("'").append(text) + "' is not linear, sqrt or fixed"};
}

double rate_factor(RateRule rule, double share) {
  ENSURE(share > 0 && share <= 1, "an update is made of at most a global batch");
  switch (rule) {
    case RateRule::kLinear: return share;
    case RateRule::kSqrt: return std::sqrt(share);
    case RateRule::kFixed: return 1;
  }
  UNREACHABLE("every rule has a factor");
}

}  // namespace mayfly::parameter_server
