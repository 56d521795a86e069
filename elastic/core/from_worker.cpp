#include "elastic/core/from_worker.hpp"

#include <type_traits>
#include <variant>

namespace mayfly::elastic {
namespace {

template <typename M, typename... Listed>
constexpr bool is_one_of = (std::is_same_v<M, Listed> || ...);

}  // namespace

bool is_from_worker(const Message& message) {
  return std::visit(
      []<typename M>(const M&) {
        return is_one_of<M, Ready, Stopped, Formed, Synced, Progress, CaughtUp, Heartbeat,
                         LeaveRequest, Report, StoreSet, StoreGet, ViewWanted, Resume, Left>;
      },
      message);
}

}  // namespace mayfly::elastic
