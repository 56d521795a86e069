#include "engine/state_sync.hpp"

#include <fmt/format.h>

#include "base/check.hpp"
#include "nn/checkpoint.hpp"

namespace mayfly::engine {

Result<void> sync_state(collectives::Group& group, const elastic::View& view, nn::ModelState& state,
                        Instant deadline) {
  ENSURE(state.committed <= view.committed, "no member is ahead of its view");
  if (!view.anyone_behind) {
    ENSURE(state.committed == view.committed, "nobody is behind, so neither are we");
    return {};
  }
  const bool is_source = group.rank() == view.source;
  ENSURE(!is_source || state.committed == view.committed, "the source holds the view's state");
  Bytes packed(nn::packed_state_size(state));
  if (is_source) {
    nn::pack_state(state, packed);
  }
  if (Result<void> sent = group.broadcast(packed, view.source)->wait(deadline); !sent.ok()) {
    return sent;
  }
  if (state.committed < view.committed) {
    return nn::unpack_state(packed, state);
  }
  Bytes own(packed.size());
  nn::pack_state(state, own);
  if (own != packed) {
    return Error{Errc::kDiverged,
                 fmt::format("this worker's state after step {} differs from that of rank {}",
                             value(state.committed), value(view.source))};
  }
  return {};
}

}  // namespace mayfly::engine
