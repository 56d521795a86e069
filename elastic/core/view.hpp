#pragma once

// Views: immutable descriptions of a group and of the microbatches that each member computes; the
// difference between two views, as it is sent; and what members may compute between two views.
// Pure functions and values; any thread.

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

/// A set of microbatch numbers of one step, stored as runs of consecutive numbers. A member's share
/// is one run or a few, so the set is small whatever the number of microbatches.
class MicrobatchSet {
 public:
  MicrobatchSet() = default;
  /// The contiguous set [first, first + count).
  static MicrobatchSet range(std::uint32_t first, std::uint32_t count);

  /// Consecutive numbers: [first, first + count).
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
  /// The numbers in ascending order.
  [[nodiscard]] std::vector<std::uint32_t> list() const;
  /// The set as the smallest number of runs, ascending; valid until the set changes.
  [[nodiscard]] std::span<const Run> runs() const {
    return several_.empty() ? std::span(&one_, one_.count > 0 ? 1 : 0) : std::span(several_);
  }
  /// The numbers of this set that are not in `other`.
  [[nodiscard]] MicrobatchSet minus(const MicrobatchSet& other) const;

  friend bool operator==(const MicrobatchSet&, const MicrobatchSet&) = default;

 private:
  // Ascending, not empty, with a gap between any two. Nearly always there is at most one run.
  Run one_;                   // the only run; empty if there is none, or several
  std::vector<Run> several_;  // all runs, if there are two or more
};

/// One member of a view and its share of the work. Its rank is its index in View::members.
struct ViewMember {
  MemberId id{};
  std::string address;       ///< address of its gradient transport; opaque here
  MicrobatchSet first_step;  ///< its microbatches in the view's first step, kept sums included
  std::uint32_t first = 0;   ///< its microbatches in every later step: [first, first + count)
  std::uint32_t count = 0;
  /// Not 0: the member is an observer (ADR 16). It has no microbatches, but receives the sum of
  /// every step. Meanwhile it receives the state with which the view `observes` began, and applies
  /// the sums to it.
  ViewId observes{};

  [[nodiscard]] bool is_observer() const { return observes != ViewId{}; }

  friend bool operator==(const ViewMember&, const ViewMember&) = default;
};

/// Each incarnation has its own range of ids for views and members. So ids are unique and grow
/// across incarnations, even if a coordinator that takes over does not know the last ids of its
/// predecessor. Incarnation 1 begins at 1.
inline constexpr std::uint64_t kIdsPerIncarnation = 1'000'000'000;
/// The last id before the range of `incarnation` (>= 1).
[[nodiscard]] constexpr std::uint64_t id_base(Incarnation incarnation) {
  return (value(incarnation) - 1) * kIdsPerIncarnation;
}
/// The incarnation in which this view was published; for ids >= 1.
[[nodiscard]] constexpr Incarnation incarnation_of(ViewId id) {
  return Incarnation{(value(id) - 1) / kIdsPerIncarnation + 1};
}

/// Upper bound on View::bases.
inline constexpr std::size_t kViewBasesMax = 16;

/// An older view; a majority of its members must have consented to the new one, see View::bases.
struct ViewBase {
  ViewId id{};
  std::vector<MemberId> members;  ///< in rank order; if exactly half consent, the first one decides

  friend bool operator==(const ViewBase&, const ViewBase&) = default;
};

/// One membership of the job. Immutable: a change makes a new view.
struct View {
  ViewId id{};
  std::uint64_t key = 0;  ///< random; members of this view recognise each other by it
  Step committed{};       ///< the highest committed step; the view resumes at the next one
  Rank source{};          ///< a member that holds the state after `committed`
  /// Members that are to compute and lack that state, ascending. Empty in a view with observers.
  std::vector<Rank> behind = {};
  std::vector<ViewMember> members;
  /// Only in jobs with a quorum: the older views whose majorities consented. These are the last
  /// view that is known to have committed a step, and the later ones that may have (ADR 15).
  std::vector<ViewBase> bases = {};

  [[nodiscard]] bool has_observers() const;
  [[nodiscard]] bool anyone_behind() const { return !behind.empty(); }

  friend bool operator==(const View&, const View&) = default;
};

/// The member with this id, or nullptr; members are in the order of their ids.
[[nodiscard]] const ViewMember* member_of(const View& view, MemberId id);

/// The microbatches that `member` of `view` computes in the step after `committed`, which may be
/// the view's first step or a later one.
[[nodiscard]] MicrobatchSet due_after(const View& view, const ViewMember& member, Step committed);

/// Upper bound on the donors of one view.
inline constexpr std::size_t kDonorsMax = 16;

/// The donors: each sends one part of the state with which the view begins to the members that lack
/// it. They are the first members that compute and have that state. Not empty.
[[nodiscard]] std::vector<Rank> donors_of(const View& view);
/// The reporter, which sends the step records and writes checkpoints: the first member that
/// computes.
[[nodiscard]] Rank reporter_of(const View& view);

/// A view as the difference from the previous one. If every member were sent the whole view, the
/// bytes would grow with the square of the number of members, although a change affects few of
/// them. So a member that has the previous view is sent only the members that left and joined, and
/// the shares.
struct ViewDelta {
  /// A member that was not in the previous view.
  struct Newcomer {
    MemberId id{};
    std::string address;
    friend bool operator==(const Newcomer&, const Newcomer&) = default;
  };
  /// The work of a member in the first step. After a loss nearly all members keep their
  /// microbatches, otherwise they begin with their new range: in both cases no numbers have to be
  /// sent.
  enum class FirstStep : std::uint8_t {
    kAsLater = 0,   ///< [first, first + count)
    kAsBefore = 1,  ///< what it would have computed in that step in the previous view, due_after()
    kOther = 2      ///< Share::first_step
  };
  /// The share of one member, by rank in the new view; fields as in ViewMember.
  struct Share {
    FirstStep rule = FirstStep::kAsLater;
    MicrobatchSet first_step;  ///< only with kOther
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    ViewId observes{};
    friend bool operator==(const Share&, const Share&) = default;
  };

  ViewId base{};            ///< the view that this is a difference from
  std::uint64_t whole = 0;  ///< hash of the new view, by which apply_delta() detects a wrong base
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
/// The view that make_delta() was given; kCorrupt if `base` is not the view that it was given.
[[nodiscard]] Result<View> apply_delta(const View& base, const ViewDelta& delta);

// The work of a member while there is no group: between the boundary that ended one view and the
// formation of the next group. Kept sums do not depend on the view in which a microbatch was
// computed (ADR 8), only on the weights and the step; these functions decide when both are certain.

/// The microbatches of the view's first step that `self` may begin before the group of this view is
/// formed; `self` holds the state after `committed`. Its whole share, or nothing if it lacks the
/// view's state, because gradients of other weights must never enter the step's sums.
[[nodiscard]] MicrobatchSet work_before_group(const View& view, const ViewMember& self,
                                              Step committed);

/// The microbatches that `self` may begin after its view has ended at a boundary and before the
/// next one is announced. Nothing unless it `stays`. The shares of the next view are not known yet,
/// so these are at most `at_once` of its usual microbatches, one for each of its threads: the next
/// view assigns the rest, also to newcomers.
[[nodiscard]] MicrobatchSet work_at_boundary(const ViewMember& self, bool stays,
                                             std::uint32_t at_once);

}  // namespace mayfly::elastic
