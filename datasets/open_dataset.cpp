#include "datasets/dataset.hpp"
#include "datasets/procedural.hpp"

namespace mayfly::datasets {

Result<DatasetPair> open_dataset(const std::string& spec, const OpenOptions& options) {
  if (spec == "procedural" || spec.rfind("procedural:", 0) == 0) {
    return open_procedural(spec, options.seed);
  }
  return Error{Errc::kInvalidInput, "'" + spec + "' is no data set"};
}

}  // namespace mayfly::datasets
