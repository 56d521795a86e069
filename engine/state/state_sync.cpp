#include "engine/state/state_sync.hpp"

#include <fmt/format.h>

#include <algorithm>

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

Result<void> sync_observers(collectives::Group& group, const elastic::View& view, bool observes,
                            std::vector<std::int32_t>& exponents, BucketTuner& tuner,
                            Instant deadline) {
  const std::span<std::byte> own_exponents = std::as_writable_bytes(std::span(exponents));
  Bytes message(tuner.packed_size() + own_exponents.size());
  tuner.pack(std::span(message).first(tuner.packed_size()));
  std::ranges::copy(own_exponents, std::span(message).subspan(tuner.packed_size()).begin());
  const Bytes own = message;
  if (Result<void> sent = group.broadcast(message, view.source)->wait(deadline); !sent.ok()) {
    return sent;
  }
  if (observes) {
    std::ranges::copy(ByteSpan(message).subspan(tuner.packed_size()), own_exponents.begin());
    return tuner.unpack(ByteSpan(message).first(tuner.packed_size()));
  }
  if (own != message) {
    return Error{Errc::kDiverged,
                 fmt::format("this worker's exponents after step {} differ from those of rank {}",
                             value(view.committed), value(view.source))};
  }
  return {};
}

Result<std::vector<DonorAddress>> exchange_addresses(collectives::Group& group,
                                                     const DonorAddress& own, Instant deadline) {
  std::vector<DonorAddress> all(group.size());
  if (Result<void> gathered =
          group
              .all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)))
              ->wait(deadline);
      !gathered.ok()) {
    return gathered.error();
  }
  return all;
}

}  // namespace mayfly::engine
