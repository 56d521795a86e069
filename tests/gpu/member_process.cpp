#include "tests/gpu/member_process.hpp"

#include <utility>

namespace mayfly::collectives::gpu_test {
namespace {

constexpr int kHangMs = 120'000;

// NCCL reads its environment at its first call, so the variables must be set from the start.
std::vector<std::pair<std::string, std::string>> variables_of(int id) {
  return {{"NCCL_NET", "Socket"},
          {"NCCL_SOCKET_IFNAME", "lo"},
          {"NCCL_IB_DISABLE", "1"},
          {"NCCL_NVLS_ENABLE", "0"},
          {"NCCL_RAS_ENABLE", "0"},
          {"NCCL_MIN_CTAS", "1"},
          {"NCCL_MAX_CTAS", "2"},
          {"NCCL_DEBUG_FILE", "/dev/stderr"},
          {"NCCL_HOSTID", "mayfly-test-" + std::to_string(id)}};
}

}  // namespace

MemberProcess::MemberProcess(int id, const std::string& folder)
    : LineProcess({"/proc/self/exe", "--member", folder}, kHangMs, variables_of(id)), id_(id) {}

void tell_view(const Members& members, int view) {
  std::string peers;
  for (const auto& member : members) {
    peers += " " + std::to_string(member->id());
  }
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    members[rank]->tell("form " + std::to_string(view) + " " + std::to_string(rank) + peers);
  }
}

void tell_all(const Members& members, const std::string& line) {
  for (const auto& member : members) {
    member->tell(line);
  }
}

}  // namespace mayfly::collectives::gpu_test
