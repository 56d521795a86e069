#include "nn/cuda/step_trial.hpp"

#include <set>
#include <utility>
#include <variant>

namespace mayfly::nn::cuda {

Result<std::vector<FailedConvolution>> try_convolutions(
    const StepPlan& plan, const StepExecutor& executor, Convolver& convolver, Stream stream,
    const std::function<Result<void>()>& settle) {
  std::vector<FailedConvolution> failed;
  std::set<ConvKey> tried;
  for (std::size_t i = 0; i < plan.operations.size(); ++i) {
    const auto* const what = std::get_if<Convolve>(&plan.operations[i]);
    if (what == nullptr) {
      continue;
    }
    const ConvKey key{plan.dtype, plan.layers[what->layer].conv, what->pass};
    if (!tried.insert(key).second) {
      continue;
    }
    const Result<void> begun = convolver.convolve(i, *what, executor.tensors_of(*what), stream);
    if (!begun.ok()) {
      failed.push_back({key, begun.error().detail});
    }
    if (const Result<void> settled = settle(); !settled.ok()) {
      return Error{settled.error().code, text_of(key) + ": " + settled.error().detail};
    }
  }
  return failed;
}

Result<void> plan_what_runs(
    const std::function<Result<void>(const std::vector<EngineRefusal>&)>& plan,
    const std::function<Result<std::vector<EngineRefusal>>()>& try_all) {
  std::vector<EngineRefusal> all;
  while (true) {
    TRY(plan(all));
    Result<std::vector<EngineRefusal>> refused = try_all();
    if (!refused.ok()) {
      return std::move(refused).error();
    }
    if (refused.value().empty()) {
      return {};
    }
    all.insert(all.end(), refused.value().begin(), refused.value().end());
  }
}

}  // namespace mayfly::nn::cuda
