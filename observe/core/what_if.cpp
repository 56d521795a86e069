#include "observe/core/what_if.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/try_assign.hpp"

namespace mayfly::observe {
namespace {

constexpr const char* kExample = "loaders=4,cached=50%,storage=20MB/s,workers=6 or without=3";
/// Smaller gains do not justify a change, or a larger change.
constexpr double kWorthwhile = 0.03;
constexpr double kNearlyTheSame = 0.02;
constexpr std::uint32_t kLoadersMax = 32;
/// A record with larger numbers is damaged.
constexpr std::uint32_t kThreadsMax = 4096;
constexpr std::uint32_t kMicrobatchesMax = 65'536;
constexpr double kStageMsMax = 1e7;
constexpr std::size_t kExchange = 3;
constexpr std::size_t kUpdate = 4;
static_assert(std::string_view(kStepPartNames[kExchange]) == "exchange");
static_assert(std::string_view(kStepPartNames[kUpdate]) == "update");

bool is_plausible(const MemberMeasure& measure) {
  const MemberStages& stages = *measure.stages;
  const std::array<double, 4> times = {stages.fetch_ms, stages.prep_ms, stages.compute_ms,
                                       stages.compute_cpu_ms};
  return measure.microbatches <= kMicrobatchesMax && stages.load_threads <= kThreadsMax &&
         stages.compute_threads <= kThreadsMax && stages.bytes >= 0 && stages.compute_ms > 0 &&
         std::ranges::all_of(times, [](double ms) { return ms >= 0 && ms <= kStageMsMax; });
}

/// The number at the beginning of a text, and the rest of the text.
std::pair<std::optional<double>, std::string_view> number_and_unit(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || !std::isfinite(value)) {
    return {std::nullopt, text};
  }
  return {value, text.substr(static_cast<std::size_t>(end - text.data()))};
}

std::optional<std::uint64_t> whole_number(std::string_view text, double least, double most) {
  const auto [value, unit] = number_and_unit(text);
  if (!value || !unit.empty() || *value < least || *value > most || *value != std::floor(*value)) {
    return std::nullopt;
  }
  return static_cast<std::uint64_t>(*value);
}

std::optional<double> share(std::string_view text) {
  const auto [value, unit] = number_and_unit(text);
  return value && unit == "%" && *value >= 0 && *value <= 100 ? std::optional(*value / 100)
                                                              : std::nullopt;
}

std::optional<double> rate(std::string_view text) {
  const auto [value, unit] = number_and_unit(text);
  const double factor = unit == "kB/s" ? 1e3 : unit == "MB/s" ? 1e6 : unit == "GB/s" ? 1e9 : 0;
  return value && *value > 0 && factor > 0 ? std::optional(*value * factor) : std::nullopt;
}

bool set_change(WhatIf& change, std::string_view name, std::string_view value) {
  const auto set = [](auto& field, const auto& parsed) {
    if (parsed && !field) {
      field = static_cast<typename std::decay_t<decltype(field)>::value_type>(*parsed);
      return true;
    }
    return false;
  };
  if (name == "loaders") {
    return set(change.loaders, whole_number(value, 1, 1024));
  }
  if (name == "cached") {
    return set(change.cached, share(value));
  }
  if (name == "storage") {
    return set(change.storage, rate(value));
  }
  if (name == "workers") {
    return set(change.workers, whole_number(value, 1, 10'000));
  }
  return name == "without" && set(change.without, whole_number(value, 0, 1e15));
}

/// Distributes `microbatches` over the workers in proportion to their present shares.
void share_out(std::vector<PipelineWorker>& workers, std::uint32_t microbatches) {
  const auto add = [](std::uint32_t sum, const PipelineWorker& w) { return sum + w.microbatches; };
  const std::uint32_t all = std::accumulate(workers.begin(), workers.end(), 0U, add);
  std::uint32_t before = 0;
  std::uint32_t given = 0;
  for (PipelineWorker& worker : workers) {
    before += worker.microbatches;
    const auto until =
        static_cast<std::uint32_t>(std::llround(static_cast<double>(microbatches) * before / all));
    worker.microbatches = std::max(1U, until - given);
    given = until;
  }
}

/// The time for a worker's share of a step, in milliseconds.
double time_to_compute(const PipelineWorker& worker) {
  return (worker.compute_ms + worker.wait_ms) * worker.microbatches / worker.compute_threads;
}

PipelineWorker mean_worker(const std::vector<PipelineWorker>& workers) {
  PipelineWorker mean = workers.front();
  const auto of = [&workers](auto field) {
    double sum = 0;
    for (const PipelineWorker& worker : workers) {
      sum += worker.*field;
    }
    return sum / static_cast<double>(workers.size());
  };
  mean.compute_ms = of(&PipelineWorker::compute_ms);
  mean.wait_ms = of(&PipelineWorker::wait_ms);
  mean.fetch_ms = of(&PipelineWorker::fetch_ms);
  mean.prep_ms = of(&PipelineWorker::prep_ms);
  mean.bytes = of(&PipelineWorker::bytes);
  return mean;
}

/// The time of the messages of n workers in a ring, up to a factor.
double ring_share(std::size_t workers) {
  return static_cast<double>(workers - 1) / static_cast<double>(workers);
}

/// Replaces the workers by `count` average ones, on the present hosts in turn.
Result<void> set_workers(Pipeline& pipeline, std::uint32_t count, std::uint32_t microbatches) {
  const std::size_t before = pipeline.workers.size();
  if (before == 1 && count > 1) {
    return Error{Errc::kInvalidInput,
                 "workers: the run had one worker, so the time of an exchange is not known"};
  }
  if (count > microbatches) {
    return Error{Errc::kInvalidInput, "workers: a step has " + std::to_string(microbatches) +
                                          " microbatches, so no more workers have work"};
  }
  const PipelineWorker mean = mean_worker(pipeline.workers);
  std::vector<PipelineWorker> workers(count, mean);
  for (std::uint32_t w = 0; w < count; ++w) {
    workers[w].host = pipeline.workers[w % before].host;
    workers[w].microbatches = 1;
  }
  share_out(workers, microbatches);
  pipeline.workers = std::move(workers);
  pipeline.exchange_ms *= before == 1 ? 0 : ring_share(count) / ring_share(before);
  return {};
}

Result<void> remove_worker(Pipeline& pipeline, std::uint64_t member, std::uint32_t microbatches) {
  const std::size_t before = pipeline.workers.size();
  std::erase_if(pipeline.workers, [member](const auto& w) { return w.member == member; });
  if (pipeline.workers.size() == before) {
    return Error{Errc::kInvalidInput,
                 "without: worker " + std::to_string(member) + " is not one of the last view"};
  }
  if (pipeline.workers.empty()) {
    return Error{Errc::kInvalidInput, "without: it is the only worker"};
  }
  share_out(pipeline.workers, microbatches);
  pipeline.exchange_ms *= ring_share(before - 1) / ring_share(before);
  return {};
}

Result<Pipeline> changed(Pipeline pipeline, const WhatIf& change) {
  std::uint32_t microbatches = 0;
  for (const PipelineWorker& worker : pipeline.workers) {
    microbatches += worker.microbatches;
  }
  if (change.without) {
    TRY(remove_worker(pipeline, *change.without, microbatches));
  }
  if (change.workers) {
    TRY(set_workers(pipeline, *change.workers, microbatches));
  }
  for (PipelineWorker& worker : pipeline.workers) {
    const double read = 1 - change.cached.value_or(0);
    worker.load_threads = change.loaders.value_or(worker.load_threads);
    worker.fetch_ms *= read;
    worker.bytes *= read;
    worker.storage_rate = change.storage;
  }
  return pipeline;
}

WhatIfAnswer answer_of(const RecordedSteps& steps, double step_ms, std::size_t workers) {
  WhatIfAnswer answer;
  answer.step_ms = step_ms;
  answer.images_per_second = 1000 * steps.images / step_ms;
  answer.workers = workers;
  if (steps.price > 0 && steps.epoch_images > 0) {
    answer.epoch_cost = steps.price * static_cast<double>(workers) * steps.epoch_images /
                        answer.images_per_second / 3600;
  }
  return answer;
}

/// The last measure of a worker that computed until the end of the job, or still does. A measure
/// after the worker was told that the job is done has no share of a step.
std::optional<MemberMeasure> measure_at_end(const Members& members, const MemberLane& lane) {
  // "disconnected" may be the end of the job.
  if (!lane.end.empty() && lane.end != "ended" && lane.end != "disconnected") {
    return std::nullopt;
  }
  const std::vector<MemberMeasure> measures = members.measures_of(lane);
  const auto last = std::find_if(measures.rbegin(), measures.rend(), [](const auto& measure) {
    return measure.microbatches > 0 || !measure.is_going;
  });
  return last == measures.rend() || last->microbatches == 0 ? std::nullopt : std::optional(*last);
}

double price_of_worker(const Servers& servers) {
  for (auto point = servers.points().rbegin(); point != servers.points().rend(); ++point) {
    if (point->billing > 0 && point->per_hour > 0) {
      return point->per_hour / point->billing;
    }
  }
  return 0;
}

/// The first of these changes, which are ordered by size, that has nearly the effect of the best of
/// them.
std::optional<Advice> smallest_good(const RecordedSteps& steps, const std::vector<Advice>& asked) {
  std::vector<Advice> answered;
  double best = steps.recorded_ms;
  for (Advice each : asked) {
    Result<WhatIfAnswer> result = answer(steps, each.change);
    if (result.ok()) {
      each.answer = result.value();
      best = std::min(best, each.answer.step_ms);
      answered.push_back(std::move(each));
    }
  }
  if (best > (1 - kWorthwhile) * steps.recorded_ms) {
    return std::nullopt;
  }
  return *std::ranges::find_if(answered, [best](const Advice& each) {
    return each.answer.step_ms <= (1 + kNearlyTheSame) * best;
  });
}

}  // namespace

Result<WhatIf> parse_what_if(const std::string& text) {
  WhatIf change;
  std::string_view rest = text;
  do {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos ||
        !set_change(change, part.substr(0, equals), part.substr(equals + 1))) {
      return Error{Errc::kInvalidInput, "--what-if '" + std::string(part) +
                                            "' is not known or given twice; it takes " + kExample};
    }
  } while (!rest.empty());
  if (change.workers && change.without) {
    return Error{Errc::kInvalidInput, "--what-if takes either workers or without, not both"};
  }
  return change;
}

Result<RecordedSteps> recorded_steps(const RunFold& run) {
  RecordedSteps steps;
  std::vector<double> computed_ms;
  for (const MemberLane& lane : run.members().lanes()) {
    if (!run.is_profiled(lane.spans.front().from)) {
      continue;  // a member of another part of the job
    }
    const std::optional<MemberMeasure> measure = measure_at_end(run.members(), lane);
    if (!measure) {
      continue;
    }
    if (measure->stages && !is_plausible(*measure)) {
      return Error{Errc::kUnsupported, "members.jsonl is damaged: worker " +
                                           std::to_string(lane.member) +
                                           " has impossible times or counts in its stages"};
    }
    if (!measure->stages) {
      return Error{Errc::kUnsupported, "members.jsonl does not say how worker " +
                                           std::to_string(lane.member) +
                                           " loads its images: they were in memory"};
    }
    const MemberStages& stages = *measure->stages;
    steps.pipeline.workers.push_back({.member = lane.member,
                                      .host = lane.host,
                                      .microbatches = measure->microbatches,
                                      .compute_threads = std::max(1U, stages.compute_threads),
                                      .load_threads = stages.load_threads,
                                      .ahead = std::max(1U, stages.ahead),
                                      .yields = stages.yields,
                                      .compute_ms = stages.compute_cpu_ms,
                                      .fetch_ms = stages.fetch_ms,
                                      .prep_ms = stages.prep_ms,
                                      .bytes = stages.bytes,
                                      .storage_rate = std::nullopt});
    computed_ms.push_back(stages.compute_ms);
    if (measure->cores > 0) {
      double& cores = steps.pipeline.cores[lane.host];
      cores = std::max<double>(cores, measure->cores);
    }
  }
  const StepProfile& profile = run.step_profile();
  if (computed_ms.empty() || profile.total() <= 0) {
    return Error{Errc::kUnsupported,
                 "no record shows what the time of steps was spent on: the run was too short, or "
                 "used parameter servers"};
  }
  const auto count = static_cast<double>(profile.steps());
  steps.pipeline.exchange_ms = 1000 * profile.seconds()[kExchange] / count;
  steps.pipeline.update_ms = 1000 * profile.seconds()[kUpdate] / count;
  calibrate(steps.pipeline, computed_ms);
  steps.recorded_ms = 1000 * profile.total() / count;
  steps.replayed_ms = replay(steps.pipeline).step_ms;
  const RunTotals& totals = run.totals();
  steps.images = static_cast<double>(totals.samples) / static_cast<double>(totals.steps);
  const Curves& kept = run.kept();
  if (kept.rows() > 0) {
    const double epochs = kept.value(Value::kEpoch, kept.rows() - 1);
    steps.epoch_images = epochs > 0 ? steps.images * kept.step(kept.rows() - 1) / epochs : 0;
  }
  steps.price = price_of_worker(run.servers());
  return steps;
}

WhatIfAnswer as_recorded(const RecordedSteps& steps) {
  return answer_of(steps, steps.recorded_ms, steps.pipeline.workers.size());
}

Result<WhatIfAnswer> answer(const RecordedSteps& steps, const WhatIf& change) {
  TRY_ASSIGN(const Pipeline pipeline, changed(steps.pipeline, change));
  return answer_of(steps, steps.scaled(replay(pipeline).step_ms), pipeline.workers.size());
}

std::optional<Advice> advice(const RecordedSteps& steps) {
  std::vector<Advice> loaders;
  std::vector<Advice> cached;
  std::vector<Advice> without;
  const std::uint32_t now = steps.pipeline.workers.front().load_threads;
  for (std::uint32_t count = now + 1; count <= std::min(kLoadersMax, 4 * now + 4); ++count) {
    WhatIf change;
    change.loaders = count;
    loaders.push_back({change, std::to_string(count) + " loading threads per worker", {}});
  }
  for (int percent = 5; percent <= 100; percent += 5) {
    WhatIf change;
    change.cached = percent / 100.0;
    cached.push_back({change, std::to_string(percent) + " % of the images in memory", {}});
  }
  // Only the removal of the worker that computes longest can help; a large view has too many
  // workers to try all.
  const std::uint64_t slowest =
      std::ranges::max_element(steps.pipeline.workers, {}, time_to_compute)->member;
  WhatIf change;
  change.without = slowest;
  without.push_back({change, "going on without worker " + std::to_string(slowest), {}});
  std::optional<Advice> best;
  for (const std::vector<Advice>* kind : {&loaders, &cached, &without}) {
    std::optional<Advice> found = smallest_good(steps, *kind);
    if (found && (!best || found->answer.step_ms < best->answer.step_ms)) {
      best = std::move(found);
    }
  }
  return best;
}

}  // namespace mayfly::observe
