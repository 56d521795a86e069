#pragma once

// A view as the difference from the one before. In a large job a change touches few members, so
// that telling everybody everything would cost the square of their number; whoever has the view
// before is sent only who went, who came and who computes what. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "elastic/core/view.hpp"

namespace mayfly::elastic {

struct ViewDelta {
  /// A member that the view before did not have.
  struct Newcomer {
    MemberId id{};
    std::string address;
    friend bool operator==(const Newcomer&, const Newcomer&) = default;
  };
  /// Of one member, by rank in the new view; as in ViewMember.
  struct Share {
    MicrobatchSet first_step;
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    ViewId observes{};
    friend bool operator==(const Share&, const Share&) = default;
  };

  ViewId base{};            ///< the view that this is a difference from
  std::uint64_t whole = 0;  ///< hash of the new view: a wrong base is found out
  ViewId id{};
  std::uint64_t key = 0;
  Step committed{};
  Rank source{};
  std::vector<Rank> behind;    ///< ascending
  std::vector<MemberId> gone;  ///< ascending
  std::vector<Newcomer> came;  ///< ascending
  std::vector<Share> shares;
  std::vector<ViewBase> bases;

  friend bool operator==(const ViewDelta&, const ViewDelta&) = default;
};

/// The difference of `view` from `base`; members of both are in the order of their ids.
[[nodiscard]] ViewDelta make_delta(const View& base, const View& view);
/// The view that `delta` was made of; kCorrupt if `base` is not the view that it was made against.
[[nodiscard]] Result<View> apply_delta(const View& base, const ViewDelta& delta);

}  // namespace mayfly::elastic
