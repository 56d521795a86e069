#pragma once

// Views: immutable descriptions of a group and of who computes what in it, how a view is sent as a
// difference, and what members may compute between two views. Pure.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"

namespace mayfly::elastic {

/// Upper bound on microbatches per step, so that a message's size is bounded.
inline constexpr std::uint32_t kMicrobatchesMax = 1u << 16;
/// Upper bound on members of a view.
inline constexpr std::uint32_t kMembersMax = 1u << 14;

/// A set of microbatch numbers of one step. What a member computes is a range, or nearly one: its
/// size is that of its runs, not of the step.
class MicrobatchSet {
 public:
  MicrobatchSet() = default;
  /// The contiguous set [first, first + count).
  static MicrobatchSet range(std::uint32_t first, std::uint32_t count);

  /// Neighbours: [first, first + count).
  struct Run {
    std::uint32_t first = 0;
    std::uint32_t count = 0;

    [[nodiscard]] std::uint32_t end() const { return first + count; }
    friend bool operator==(const Run&, const Run&) = default;
  };

  void add(std::uint32_t microbatch);
  void add_range(std::uint32_t first, std::uint32_t count);
  void add_all(const MicrobatchSet& other);
  [[nodiscard]] bool contains(std::uint32_t microbatch) const;
  [[nodiscard]] std::uint32_t count() const;
  [[nodiscard]] bool empty() const { return runs().empty(); }
  /// The members in ascending order.
  [[nodiscard]] std::vector<std::uint32_t> list() const;
  /// The same as the fewest runs, ascending; valid until the set changes.
  [[nodiscard]] std::span<const Run> runs() const {
    return several_.empty() ? std::span(&one_, one_.count > 0 ? 1 : 0) : std::span(several_);
  }
  /// Those of this set that are not in `other`.
  [[nodiscard]] MicrobatchSet minus(const MicrobatchSet& other) const;

  friend bool operator==(const MicrobatchSet&, const MicrobatchSet&) = default;

 private:
  // Ascending, none is empty, with a gap between any two. Nearly always there is one at most.
  Run one_;                   // the only one; empty if there is none, or several
  std::vector<Run> several_;  // all of them, if there are two or more
};

/// One member of a view and its share of the work. Its rank is its index in View::members.
struct ViewMember {
  MemberId id{};
  std::string address;       ///< of its gradient transport; opaque here
  MicrobatchSet first_step;  ///< its microbatches in the view's first step, kept sums included
  std::uint32_t first = 0;   ///< in every later step: [first, first + count)
  std::uint32_t count = 0;
  /// Not 0: an observer. It has no microbatches, but receives the sum of every step; the state that
  /// the sums are applied to, that of the view so named at its beginning, comes meanwhile (ADR 16).
  ViewId observes{};

  [[nodiscard]] bool is_observer() const { return observes != ViewId{}; }

  friend bool operator==(const ViewMember&, const ViewMember&) = default;
};

/// Ids of views and of members handed out in one incarnation lie in a range of their own, so that
/// they are unique and grow across incarnations even if the coordinator that takes over has never
/// heard of the last ones of its predecessor. Incarnation 1 begins at 1.
inline constexpr std::uint64_t kIdsPerIncarnation = 1'000'000'000;
/// The last id before the range of `incarnation` (>= 1).
[[nodiscard]] constexpr std::uint64_t id_base(Incarnation incarnation) {
  return (value(incarnation) - 1) * kIdsPerIncarnation;
}
/// In which incarnation this view was published; for ids >= 1.
[[nodiscard]] constexpr Incarnation incarnation_of(ViewId id) {
  return Incarnation{(value(id) - 1) / kIdsPerIncarnation + 1};
}

/// Upper bound on View::bases.
inline constexpr std::size_t kViewBasesMax = 16;

/// An older view of which a majority must have given its consent; see View::bases.
struct ViewBase {
  ViewId id{};
  std::vector<MemberId> members;  ///< in rank order; the first one decides if exactly half consent

  friend bool operator==(const ViewBase&, const ViewBase&) = default;
};

/// One membership of the job. Immutable: a change makes a new view.
struct View {
  ViewId id{};
  std::uint64_t key = 0;  ///< random; lets members of this view recognise each other
  Step committed{};       ///< the highest committed step; the view resumes at the one after it
  Rank source{};          ///< holds the state after `committed`; others may copy from it
  /// Ascending: members that are to work and lack that state. Nobody where there are observers.
  std::vector<Rank> behind = {};
  std::vector<ViewMember> members;
  /// Only in jobs with a quorum: the views of which its author had a majority; the last view that
  /// is known to have committed a step, and those after it of which nobody knows (ADR 15).
  std::vector<ViewBase> bases = {};

  [[nodiscard]] bool has_observers() const;
  [[nodiscard]] bool anyone_behind() const { return !behind.empty(); }

  friend bool operator==(const View&, const View&) = default;
};

/// The member of that id, or nothing; members are in the order of their ids.
[[nodiscard]] const ViewMember* member_of(const View& view, MemberId id);

/// What `member` of `view` computes in the step after `committed`: the view's first or a later one.
[[nodiscard]] MicrobatchSet due_after(const View& view, const ViewMember& member, Step committed);

/// Upper bound on the members that send a part of the state to one that lacks it.
inline constexpr std::size_t kDonorsMax = 16;

/// The members that send the state of the view's beginning to those that lack it, a part each, in
/// this order: the first that are to work and have it. Not empty.
[[nodiscard]] std::vector<Rank> donors_of(const View& view);
/// The member that reports for all and writes checkpoints: the first that is to work.
[[nodiscard]] Rank reporter_of(const View& view);

/// A view as the difference from the one before. In a large job a change touches few members, so
/// that sending everything to every member would cost the square of their number; a member that has
/// the view before is sent only which members went, which came, and who computes what.
struct ViewDelta {
  /// A member that the view before did not have.
  struct Newcomer {
    MemberId id{};
    std::string address;
    friend bool operator==(const Newcomer&, const Newcomer&) = default;
  };
  /// What a member computes in the first step. After a loss nearly all go on with what they had,
  /// and without one with their new range: neither needs to be told as numbers.
  enum class FirstStep : std::uint8_t {
    kAsLater = 0,   ///< [first, first + count)
    kAsBefore = 1,  ///< what it would have computed in that step in the view before, due_after()
    kOther = 2
  };
  /// Of one member, by rank in the new view; as in ViewMember.
  struct Share {
    FirstStep rule = FirstStep::kAsLater;
    MicrobatchSet first_step;  ///< only with kOther
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

// What a member computes while there is no group: from the boundary that ended one view until the
// group of the next, and while that forms. Kept sums do not depend on the view in which a
// microbatch was computed (ADR 8), only on the weights and the step; these functions say when both
// are certain.

/// Of a view that was announced and has no group yet: what `self`, which holds the state after
/// `committed`, may begin of its first step. All of its share, or nothing if it lacks the view's
/// state: gradients of other weights must never come into the step's sums.
[[nodiscard]] MicrobatchSet work_before_group(const View& view, const ViewMember& self,
                                              Step committed);

/// Of a view that has ended at a boundary, before the next one is announced: what `self`, told that
/// it stays, may begin of the step after that boundary. Nobody knows yet who computes what then, so
/// it is no more than `at_once` of its usual microbatches, as many as it has threads: the rest is
/// shared out by the next view, to newcomers too.
[[nodiscard]] MicrobatchSet work_at_boundary(const ViewMember& self, bool stays,
                                             std::uint32_t at_once);

}  // namespace mayfly::elastic
