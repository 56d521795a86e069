#include "elastic/core/early_work.hpp"

namespace mayfly::elastic {

MicrobatchSet work_before_group(const View& view, const ViewMember& self, Step committed) {
  const bool has_state = !self.is_observer() && committed == view.committed;
  return has_state ? self.first_step : MicrobatchSet{};
}

}  // namespace mayfly::elastic
