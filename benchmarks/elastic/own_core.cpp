#include "benchmarks/elastic/own_core.hpp"

#include <utility>

#include "base/check.hpp"

namespace mayfly::bench {
namespace {

/// Of the calling thread; threads and processes inherit it.
void keep_to(const cpu_set_t& cores) {
  ENSURE(sched_setaffinity(0, sizeof cores, &cores) == 0, "these cores could be used before");
}

}  // namespace

Result<OwnCore> OwnCore::reserve() {
  cpu_set_t all;
  CPU_ZERO(&all);
  if (sched_getaffinity(0, sizeof all, &all) != 0) {
    return Error{Errc::kIo, "cannot find out which cores may be used"};
  }
  if (CPU_COUNT(&all) < 2) {
    return Error{Errc::kInvalidInput,
                 "--own-core: one core may be used here; at least 2 are needed"};
  }
  std::size_t last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &all)) {
    --last;
  }
  return OwnCore(all, last);
}

OwnCore::OwnCore(const cpu_set_t& all, std::size_t last) : all_(all), last_(last) {
  cpu_set_t others = all;
  CPU_CLR(last, &others);
  keep_to(others);
}

OwnCore::OwnCore(OwnCore&& other) noexcept
    : all_(other.all_),
      last_(other.last_),
      is_reserved_(std::exchange(other.is_reserved_, false)) {}

OwnCore::~OwnCore() {
  if (is_reserved_) {
    keep_to(all_);
  }
}

void OwnCore::move_in(std::vector<std::string>& command) const {
  command.insert(command.begin(), {"taskset", "--cpu-list", std::to_string(last_)});
}

}  // namespace mayfly::bench
