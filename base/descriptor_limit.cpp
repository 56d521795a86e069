#include "base/descriptor_limit.hpp"

#include <sys/resource.h>

#include <algorithm>

namespace mayfly {
namespace {

constexpr rlim_t kDescriptorsMax = 16'384;

}  // namespace

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return;
  }
  const rlim_t wanted = std::min(kDescriptorsMax, limit.rlim_max);
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = wanted;
    (void)::setrlimit(RLIMIT_NOFILE, &limit);  // if it fails, the lower limit holds
  }
}

}  // namespace mayfly
