#pragma once

// Distinct types for distinct concepts, so that a rank cannot be passed in place of a member id.

#include <cstdint>
#include <type_traits>

namespace mayfly {

/// Identity of a worker for the life of its process; handed out by the coordinator, never reused.
enum class MemberId : std::uint64_t {};
/// Number of a view (one membership of the job). Later views have higher numbers.
enum class ViewId : std::uint64_t {};
/// A member's position inside one view, from 0.
enum class Rank : std::uint32_t {};
/// Number of a coordinator's term, as in Raft: a restarted coordinator, or one that takes over,
/// begins a higher one, and members never obey a lower one than the highest they have accepted.
enum class Incarnation : std::uint64_t {};
/// Number of an optimizer step. Step 1 is the first; "committed step 0" means the initial state.
enum class Step : std::uint64_t {};

/// The plain number behind an id, for arithmetic, printing and the wire.
template <typename Id>
requires std::is_enum_v<Id>
[[nodiscard]] constexpr auto value(Id id) {
  return static_cast<std::underlying_type_t<Id>>(id);
}

/// The id after this one.
template <typename Id>
requires std::is_enum_v<Id>
[[nodiscard]] constexpr Id next(Id id) {
  return static_cast<Id>(value(id) + 1);
}

}  // namespace mayfly
