#include "collectives/nccl/nccl_facts.hpp"

#include <fmt/format.h>

namespace mayfly::collectives {

Result<void> judge(const NcclFacts& facts) {
  TRY(judge_gpu(facts.gpu));
  // A newer NCCL takes the configuration of an older one, not the other way round.
  if (facts.found_nccl / 100 < facts.built_nccl / 100) {
    const auto version = [](int number) {
      return library_version(static_cast<std::size_t>(number));
    };
    return Error{Errc::kUnsupported,
                 fmt::format("NCCL is too old: {} was found, this build needs {} or newer",
                             version(facts.found_nccl), version(facts.built_nccl / 100 * 100))};
  }
  if (facts.blocking_forced) {
    return Error{
        Errc::kUnsupported,
        "NCCL_COMM_BLOCKING=1 makes groups that cannot be aborted; unset it in the environment"};
  }
  return {};
}

}  // namespace mayfly::collectives
