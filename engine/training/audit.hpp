#pragma once

// An audit: one microbatch of a step, drawn at random, is computed by a second member, too, and the
// step is committed only if both got the same bits. It finds a processor that computes wrongly,
// which no comparison of states can (ADR 18). Pure.

#include <cstdint>
#include <optional>

#include "base/ids.hpp"
#include "elastic/core/view.hpp"

namespace mayfly::engine {

/// The microbatch to look at in a step, from 0; none if the step is not audited. All members draw
/// the same one, whatever the view.
[[nodiscard]] std::optional<std::uint32_t> audited_microbatch(Step step, std::uint64_t every,
                                                              std::uint64_t seed,
                                                              std::uint32_t microbatches);

/// Who computes it a second time: a worker of the view that does not have it as its own share, in
/// turn. None if there is no other. `in_first_step`: of the view, in which shares may differ.
[[nodiscard]] std::optional<Rank> auditor_of(const elastic::View& view, std::uint32_t microbatch,
                                             Step step, bool in_first_step);

}  // namespace mayfly::engine
