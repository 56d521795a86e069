#pragma once

// A member of an NCCL group as a process that reads commands; see nccl_member.hpp. The test that
// starts it acts as the coordinator. Several members share one GPU: each gets another NCCL_HOSTID,
// so that NCCL treats it as another machine and uses sockets.

#include <memory>
#include <string>
#include <vector>

#include "tests/integration/collectives/line_process.hpp"

namespace mayfly::collectives::gpu_test {

class MemberProcess : public test::LineProcess {
 public:
  /// Starts this same program as member `id`; members of one test meet in `folder`.
  MemberProcess(int id, const std::string& folder);

  [[nodiscard]] int id() const { return id_; }

 private:
  int id_;
};

using Members = std::vector<std::unique_ptr<MemberProcess>>;

/// Tells all members to form view `view`, in this order of ranks.
void tell_view(const Members& members, int view);
void tell_all(const Members& members, const std::string& line);

}  // namespace mayfly::collectives::gpu_test
