#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.hpp"

namespace mayfly::elastic {

/// Upper bound on microbatches per step, so that a message's size is bounded.
inline constexpr std::uint32_t kMicrobatchesMax = 1u << 16;
/// Upper bound on members of a view.
inline constexpr std::uint32_t kMembersMax = 1u << 14;

/// A set of microbatch numbers of one step.
class MicrobatchSet {
 public:
  MicrobatchSet() = default;
  /// The contiguous set [first, first + count).
  static MicrobatchSet range(std::uint32_t first, std::uint32_t count);

  /// Neighbours: [first, first + count).
  struct Run {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
  };

  void add(std::uint32_t microbatch);
  void add_range(std::uint32_t first, std::uint32_t count);
  void add_all(const MicrobatchSet& other);
  [[nodiscard]] bool contains(std::uint32_t microbatch) const;
  [[nodiscard]] std::uint32_t count() const;
  [[nodiscard]] bool empty() const { return count() == 0; }
  /// The members in ascending order.
  [[nodiscard]] std::vector<std::uint32_t> list() const;
  /// The same as the fewest runs, ascending.
  [[nodiscard]] std::vector<Run> runs() const;
  /// Those of this set that are not in `other`.
  [[nodiscard]] MicrobatchSet minus(const MicrobatchSet& other) const;
  [[nodiscard]] bool intersects(const MicrobatchSet& other) const;

  /// 64 microbatches per word, lowest bit first, no trailing zero words.
  [[nodiscard]] const std::vector<std::uint64_t>& words() const { return words_; }
  static MicrobatchSet from_words(std::vector<std::uint64_t> words);

  friend bool operator==(const MicrobatchSet&, const MicrobatchSet&) = default;

 private:
  std::vector<std::uint64_t> words_;
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

/// Upper bound on the members that send a part of the state to one that lacks it.
inline constexpr std::size_t kDonorsMax = 16;

/// The members that send the state of the view's beginning to those that lack it, a part each, in
/// this order: the first that are to work and have it. Not empty.
[[nodiscard]] std::vector<Rank> donors_of(const View& view);
/// The member that reports for all and writes checkpoints: the first that is to work.
[[nodiscard]] Rank reporter_of(const View& view);

}  // namespace mayfly::elastic
