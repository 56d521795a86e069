#include "engine/program/program_computer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.hpp"
#include "base/digest.hpp"
#include "base/random.hpp"

namespace mayfly::engine {

ProgramComputer::ProgramComputer(const Job& job, const ReductionLayout& layout,
                                 const ProgramTensors& tensors, ProgramState& state,
                                 Mailbox& mailbox, std::uint32_t test_chunk)
    : job_(job),
      layout_(layout),
      tensors_(tensors),
      state_(state),
      mailbox_(mailbox),
      test_chunk_(test_chunk),
      stream_(seed_of_samples(job.config), job.facts.train_samples),
      sums_(layout, job.wire, job.microbatches, job.config.seed),
      vector_(layout.element_count()) {
  state_.update_with(*this);
}

ProgramComputer::Samples ProgramComputer::samples_of(const ProgramTask& task) const {
  Samples samples;
  if (task.kind == ProgramTask::Kind::kEvaluate) {
    const std::uint64_t first = std::uint64_t{task.number} * test_chunk_;
    const std::uint64_t last =
        std::min<std::uint64_t>(first + test_chunk_, job_.facts.program.test_samples);
    for (std::uint64_t id = first; id < last; ++id) {
      samples.ids.push_back(id);
      samples.epochs.push_back(0);
    }
    return samples;
  }
  const std::uint64_t first = (task.step - 1) * job_.config.global_batch +
                              std::uint64_t{task.number} * job_.config.microbatch;
  for (std::uint32_t i = 0; i < job_.config.microbatch; ++i) {
    const datasets::StreamEntry entry = stream_.at(first + i);
    samples.ids.push_back(entry.sample);
    samples.epochs.push_back(entry.epoch);
  }
  return samples;
}

std::uint64_t ProgramComputer::seed_of(const ProgramTask& task) const {
  RandomStream random{CounterRandom(job_.config.seed).split(task.step).split(task.number)};
  return random.bits();
}

/// Checks the statistics of the present microbatch. The trainer itself reports a divergence of the
/// training, which shows in the loss.
Result<void> ProgramComputer::check_statistics(std::span<const float> statistics) const {
  const auto found = std::ranges::find_if_not(statistics, [](float x) { return std::isfinite(x); });
  auto place = static_cast<std::size_t>(found - statistics.begin());
  const bool is_metric = place >= state_.buffer_elements();
  for (const SummedTensor& tensor : tensors_.summed().statistics) {
    if (place < tensor.size) {
      return Error{Errc::kInvalidInput,
                   fmt::format("{} {} in this microbatch is infinite or NaN, and has no mean over "
                               "the step",
                               is_metric ? "the metric" : "the change of the buffer", tensor.name)};
    }
    place -= tensor.size;
  }
  return {};
}

/// Fills vector_ with [loss | changes of buffers, metrics, weight | gradients] of a microbatch.
/// With the weight 0 everything is 0, even values that are not finite.
Result<void> ProgramComputer::fill(const MicrobatchResult& result) {
  const std::span<float> vector = vector_.span();
  std::fill_n(vector.begin(), layout_.parameters_offset(), 0.0F);
  const float weight = result.weight;
  vector[0] = weight == 0 ? 0 : result.loss * weight;
  vector[state_.weight_at()] = weight;
  if (weight != 0) {
    const std::span<float> statistics =
        vector.first(layout_.parameters_offset()).subspan(layout_.statistics_offset());
    state_.put_buffer_changes(statistics);
    std::ranges::transform(result.metrics, statistics.subspan(state_.buffer_elements()).begin(),
                           [](double value) { return static_cast<float>(value); });
    if (std::isfinite(result.loss)) {
      TRY(check_statistics(statistics));
    }
  }
  std::size_t first = layout_.parameters_offset();
  for (std::size_t i = 0; i < tensors_.parameters.size(); ++i) {
    const std::size_t size = tensors_.parameters[i].elements;
    const auto out = vector.begin() + static_cast<std::ptrdiff_t>(first);
    if (result.gradients[i] == nullptr || weight == 0) {
      std::fill_n(out, size, 0.0F);
    } else if (weight == 1) {
      std::copy_n(result.gradients[i], size, out);
    } else {
      std::transform(result.gradients[i], result.gradients[i] + size, out,
                     [weight](float g) { return g * weight; });
    }
    first += size;
  }
  return {};
}

Result<void> ProgramComputer::add(const MicrobatchResult& result) {
  const std::optional<ProgramTask> task = mailbox_.current();
  ENSURE(task && task->kind == ProgramTask::Kind::kMicrobatch, "a microbatch is at hand");
  ENSURE(result.gradients.size() == tensors_.parameters.size(), "a gradient for each parameter");
  TRY(fill(result));
  const auto hash = [this] { return digest_of(std::as_bytes(vector_.span())).low; };
  if (task->is_repeated) {
    repeated_hash_ = hash();
  } else {
    for (std::size_t b = 0; b < layout_.buckets().size(); ++b) {
      sums_.add_bucket(b, vector_.span(), task->number);
    }
    StepTotals totals;
    for (const std::uint64_t id : samples_of(*task).ids) {
      totals.add_sample(id);
    }
    totals.correct = static_cast<std::int32_t>(result.correct);
    sums_.add_totals(totals);
    if (audited_ == task->number) {
      audited_hash_ = hash();
    }
    has_first_ = has_first_ || task->number == 0;
    computed_ns_ += (monotonic_now() - taken_.value_or(monotonic_now())).count();
    ++microbatches_;
  }
  mailbox_.done();
  return {};
}

EvaluationSums ProgramComputer::no_sums() const {
  EvaluationSums sums;
  sums.own.resize(job_.facts.program.sums.size());
  return sums;
}

void ProgramComputer::evaluated(std::uint64_t correct, double loss_sum,
                                std::span<const double> own) {
  const std::optional<ProgramTask> task = mailbox_.current();
  ENSURE(task && task->kind == ProgramTask::Kind::kEvaluate, "a chunk is at hand");
  evaluation_ = no_sums();
  evaluation_.correct = static_cast<std::int64_t>(correct);
  evaluation_.loss.add(loss_sum);
  evaluation_.samples = static_cast<std::int64_t>(samples_of(*task).ids.size());
  for (std::size_t i = 0; i < std::min(own.size(), evaluation_.own.size()); ++i) {
    evaluation_.own[i].add(own[i]);
  }
  mailbox_.done();
}

void ProgramComputer::begin_step(std::uint64_t step, std::span<const std::int32_t> exponents,
                                 std::optional<std::uint32_t> audited) {
  step_ = step;
  audited_ = audited;
  audited_hash_.reset();
  has_first_ = false;
  sums_.clear(exponents, step);
}

void ProgramComputer::add_microbatches(std::span<const std::uint32_t> microbatches) {
  for (const std::uint32_t microbatch : microbatches) {
    mailbox_.add({ProgramTask::Kind::kMicrobatch, step_, microbatch});
  }
}

bool ProgramComputer::wait_for_bucket(std::size_t bucket) {
  if (!wait_for_step()) {
    return false;
  }
  sums_.settle(bucket);
  return true;
}

std::optional<std::uint64_t> ProgramComputer::recompute(std::uint32_t microbatch) {
  mailbox_.ask({ProgramTask::Kind::kMicrobatch, step_, microbatch, true});
  return repeated_hash_;
}

std::size_t ProgramComputer::test_chunks() const {
  const std::uint64_t samples = job_.facts.program.test_samples;
  return static_cast<std::size_t>((samples + test_chunk_ - 1) / test_chunk_);
}

EvaluationSums ProgramComputer::evaluate(std::span<const std::uint32_t> chunks) {
  EvaluationSums sums = no_sums();
  for (const std::uint32_t chunk : chunks) {
    if (mailbox_.is_interrupted()) {
      break;
    }
    mailbox_.ask({ProgramTask::Kind::kEvaluate, value(state_.committed()), chunk});
    sums.correct += evaluation_.correct;
    sums.loss.add(evaluation_.loss);
    sums.samples += evaluation_.samples;
    for (std::size_t i = 0; i < sums.own.size(); ++i) {
      sums.own[i].add(evaluation_.own[i]);
    }
  }
  return sums;
}

void ProgramComputer::evaluated_by_all(const EvaluationSums& sums) {
  const std::lock_guard lock(mutex_);
  evaluated_ = {value(state_.committed()),
                static_cast<std::uint64_t>(sums.samples),
                static_cast<std::uint64_t>(sums.correct),
                sums.loss.total(),
                {}};
  for (const OrderlessSum& sum : sums.own) {
    evaluated_->sums.push_back(sum.total());
  }
}

std::optional<ProgramEvaluation> ProgramComputer::take_evaluation() {
  const std::lock_guard lock(mutex_);
  return std::exchange(evaluated_, std::nullopt);
}

ComputeSpeed ProgramComputer::take_speed() {
  const std::uint64_t microbatches = microbatches_ - reported_microbatches_;
  const std::int64_t ns = computed_ns_ - reported_computed_ns_;
  reported_microbatches_ += microbatches;
  reported_computed_ns_ += ns;
  return microbatches == 0
             ? ComputeSpeed{}
             : ComputeSpeed{static_cast<double>(ns) / 1e6 / static_cast<double>(microbatches),
                            static_cast<std::uint32_t>(microbatches)};
}

ComputeWork ProgramComputer::computed() const {
  return {microbatches_, Duration(computed_ns_.load()), Duration{}};
}

}  // namespace mayfly::engine
