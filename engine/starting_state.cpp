#include "engine/starting_state.hpp"

#include <fmt/format.h>

#include "collectives/plan/exact_sum.hpp"
#include "engine/checkpoint_store.hpp"

namespace mayfly::engine {

Result<nn::ModelState> starting_state(const Job& job, const ReductionLayout& layout) {
  const std::size_t exponents = job.exact() ? layout.blocks().block_count() : 0;
  if (job.config.resume.empty()) {
    return nn::make_initial_state(job.model, job.config.seed, exponents,
                                  collectives::kUnsetExponent);
  }
  Result<LoadedCheckpoint> loaded = load_checkpoint(job.config.resume);
  if (!loaded.ok()) {
    return std::move(loaded).error();
  }
  Result<nn::ModelState> state = nn::decode_checkpoint(job.model, loaded.value().files);
  if (state.ok() && state.value().exponents.size() != exponents) {
    return Error{Errc::kInvalidInput,
                 fmt::format("{} was written with another --reduction", loaded.value().path)};
  }
  return state;
}

}  // namespace mayfly::engine
