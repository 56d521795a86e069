#include "engine/network/accuracy.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/usable_cores.hpp"
#include "datasets/loader.hpp"
#include "nn/cpu/cpu_engine.hpp"

namespace mayfly::engine {
namespace {

constexpr std::uint32_t kBatch = 16;

/// Threads claim batches by number. The results are stored by batch and summed in order at the end.
struct SharedWork {
  const nn::Model& model;
  const nn::ModelState& state;
  const datasets::DatasetPair& data;
  std::atomic<std::size_t> next_batch{0};
  std::vector<nn::EvaluationResult> results;
};

Result<void> run_thread(SharedWork& work) {
  Result<std::unique_ptr<nn::StepEngine>> engine = nn::cpu::make_cpu_engine(work.model, kBatch);
  if (!engine.ok()) {
    return engine.error();
  }
  const auto side = static_cast<std::size_t>(work.data.test->image_size());
  const std::size_t pixels = 3 * side * side;
  std::vector<float> images(kBatch * pixels);
  std::vector<std::uint16_t> labels(kBatch);
  const nn::Weights weights{work.state.parameters.span(), work.state.statistics.span(), 1};
  for (;;) {
    const std::size_t batch = work.next_batch.fetch_add(1);
    if (batch >= work.results.size()) {
      return {};
    }
    const std::size_t first = batch * kBatch;
    const std::size_t count = std::min<std::size_t>(kBatch, work.data.test->size() - first);
    const std::span<float> pixel_part(images.data(), count * pixels);
    const std::span<std::uint16_t> label_part(labels.data(), count);
    if (Result<void> read = datasets::prepare_test_batch(work.data, first, pixel_part, label_part);
        !read.ok()) {
      return read;
    }
    work.results[batch] = engine.value()->evaluate(weights, nn::Batch{pixel_part, label_part});
  }
}

}  // namespace

Result<Accuracy> measure_accuracy(const nn::Model& model, const nn::ModelState& state,
                                  const datasets::DatasetPair& data, std::uint32_t threads) {
  const std::size_t samples = data.test->size();
  SharedWork work{model, state, data, {}, {}};
  work.results.resize((samples + kBatch - 1) / kBatch);
  const std::uint32_t count = threads > 0 ? threads : std::max(1U, usable_cores());
  std::vector<Result<void>> outcomes(std::min<std::size_t>(count, work.results.size()));
  std::vector<std::thread> pool;
  for (Result<void>& outcome : outcomes) {
    pool.emplace_back([&work, &outcome] { outcome = run_thread(work); });
  }
  for (std::thread& thread : pool) {
    thread.join();
  }
  for (const Result<void>& outcome : outcomes) {
    if (!outcome.ok()) {
      return outcome.error();
    }
  }
  Accuracy accuracy;
  accuracy.samples = samples;
  for (const nn::EvaluationResult& result : work.results) {
    accuracy.correct += result.correct;
    accuracy.loss += result.loss_sum;
  }
  accuracy.loss = samples == 0 ? 0 : accuracy.loss / static_cast<double>(samples);
  return accuracy;
}

}  // namespace mayfly::engine
