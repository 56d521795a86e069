#include "engine/reduction/model_layout.hpp"

#include <vector>

#include "base/check.hpp"

namespace mayfly::engine {
namespace {

std::vector<SummedTensor> summed(const std::vector<nn::TensorInfo>& tensors) {
  std::vector<SummedTensor> all;
  for (const nn::TensorInfo& tensor : tensors) {
    all.push_back({tensor.name, tensor.size});
  }
  return all;
}

}  // namespace

ReductionLayout layout_of(const nn::Model& model, std::size_t bucket_elements) {
  ReductionLayout layout({summed(model.statistics), summed(model.parameters)}, bucket_elements);
  ENSURE(layout.parameters_offset() == layout.statistics_offset() + model.statistic_count &&
             layout.element_count() == layout.parameters_offset() + model.parameter_count,
         "the vector holds exactly the loss, the statistics and the parameters");
  return layout;
}

}  // namespace mayfly::engine
