#include "elastic/core/early_work.hpp"

#include <algorithm>

namespace mayfly::elastic {

MicrobatchSet work_before_group(const View& view, const ViewMember& self, Step committed) {
  const bool has_state = !self.is_observer() && committed == view.committed;
  return has_state ? self.first_step : MicrobatchSet{};
}

MicrobatchSet work_at_boundary(const ViewMember& self, bool stays, std::uint32_t at_once) {
  const bool may_begin = stays && !self.is_observer();
  return may_begin ? MicrobatchSet::range(self.first, std::min(self.count, at_once))
                   : MicrobatchSet{};
}

}  // namespace mayfly::elastic
