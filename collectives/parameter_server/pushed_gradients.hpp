#pragma once

// The gradients that were pushed to a shard and are still needed: each one until it is applied to
// the parameters and, on a leader, the follower has it. Their memory is reused. One thread.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "collectives/parameter_server/message.hpp"
#include "collectives/parameter_server/shard.hpp"
#include "collectives/parameter_server/shared_slots.hpp"
#include "collectives/parameter_server/slice_gradient.hpp"

namespace mayfly::parameter_server {

/// A pushed gradient: in memory of the shard's own, or where its worker has written it, in a slot
/// that is returned to the worker when this object is destroyed. Movable.
struct PushedSum {
  AlignedBuffer<float> own;
  TakenSlot slot;

  /// Empty if there is no gradient.
  [[nodiscard]] std::span<const float> span() const {
    const ByteSpan shared = slot.payload();
    return own.size() > 0 ? own.span()
                          : std::span(reinterpret_cast<const float*>(shared.data()),
                                      shared.size() / sizeof(float));
  }
};

class PushedGradients {
 public:
  /// `floats`: elements of one gradient.
  explicit PushedGradients(std::size_t floats) : floats_(floats) {}

  /// Memory of the shard's own for a gradient that is about to be received; its content is
  /// undefined.
  [[nodiscard]] PushedSum space();
  /// Recycles a gradient that is not needed: its memory is reused, or its slot is returned.
  void recycle(PushedSum sum);

  /// Keeps the gradient of the slice in this header, which describes the push. The follower has
  /// the gradient with the log's entry `entry` (0: there is no follower). No slice is kept twice.
  /// The result is valid until the gradient is applied and release() is called for the entry.
  std::span<const float> keep(PushedSum sum, const Header& push, std::uint64_t entry);

  /// The slices of one update, and what is put on record about them.
  struct Sums {
    std::vector<SliceGradient> slices;  ///< in the update's order; valid until release()
    UpdateFacts facts;
  };
  /// From now on the slices of this update count as applied. All of them must be kept.
  [[nodiscard]] Sums apply(const Update& update);

  /// Recycles the applied gradients of the entries up to this one.
  void release(std::uint64_t through);

 private:
  struct Kept {
    PushedSum sum;
    Header push;
    std::uint64_t entry = 0;
    bool is_applied = false;
  };

  const std::size_t floats_;
  std::map<std::uint64_t, Kept> kept_;       // by slice
  std::vector<AlignedBuffer<float>> spare_;  // memory for reuse, each of floats_
};

}  // namespace mayfly::parameter_server
