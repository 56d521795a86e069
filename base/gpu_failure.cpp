#include "base/gpu_failure.hpp"

#include <cstdio>
#include <cstdlib>

namespace mayfly {

void require_gpu(const Result<void>& outcome) {
  if (!outcome.ok()) [[unlikely]] {
    std::fprintf(stderr, "mayfly: this worker's GPU has failed: %s\n",
                 outcome.error().detail.c_str());
    std::abort();
  }
}

}  // namespace mayfly
