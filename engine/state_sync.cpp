#include "engine/state_sync.hpp"

#include <fmt/format.h>

#include "base/check.hpp"
#include "nn/checkpoint.hpp"

namespace mayfly::engine {

Result<void> sync_state(collectives::Group& group, const elastic::View& view, nn::ModelState& state,
                        BucketTuner& tuner, Instant deadline) {
  ENSURE(state.committed <= view.committed, "no member is ahead of its view");
  if (!view.anyone_behind) {
    ENSURE(state.committed == view.committed, "nobody is behind, so neither are we");
    return {};
  }
  const bool is_source = group.rank() == view.source;
  ENSURE(!is_source || state.committed == view.committed, "the source holds the view's state");
  const std::size_t state_bytes = nn::packed_state_size(state);
  Bytes packed(state_bytes + tuner.packed_size());
  const auto pack = [&](std::span<std::byte> out) {
    nn::pack_state(state, out.first(state_bytes));
    tuner.pack(out.subspan(state_bytes));
  };
  if (is_source) {
    pack(packed);
  }
  if (Result<void> sent = group.broadcast(packed, view.source)->wait(deadline); !sent.ok()) {
    return sent;
  }
  if (state.committed < view.committed) {
    if (Result<void> done = nn::unpack_state(std::span(packed).first(state_bytes), state);
        !done.ok()) {
      return done;
    }
    return tuner.unpack(std::span(packed).subspan(state_bytes));
  }
  Bytes own(packed.size());
  pack(own);
  if (own != packed) {
    return Error{Errc::kDiverged,
                 fmt::format("this worker's state after step {} differs from that of rank {}",
                             value(state.committed), value(view.source))};
  }
  return {};
}

}  // namespace mayfly::engine
