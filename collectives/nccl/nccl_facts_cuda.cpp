#include <nccl.h>

#include <cstdlib>
#include <cstring>

#include "collectives/nccl/nccl_facts.hpp"

namespace mayfly::collectives {

NcclFacts read_nccl_facts(int device) {
  NcclFacts facts{.gpu = read_gpu_facts(device), .built_nccl = NCCL_VERSION_CODE};
  (void)ncclGetVersion(&facts.found_nccl);
  const char* const blocking = std::getenv("NCCL_COMM_BLOCKING");
  facts.blocking_forced = blocking != nullptr && std::strcmp(blocking, "1") == 0;
  return facts;
}

}  // namespace mayfly::collectives
