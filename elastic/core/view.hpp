#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.hpp"

namespace mayfly::elastic {

/// Upper bound on microbatches per step, so that a message's size is bounded.
inline constexpr std::uint32_t kMicrobatchesMax = 4096;
/// Upper bound on members of a view.
inline constexpr std::uint32_t kMembersMax = 1024;

/// A set of microbatch numbers of one step.
class MicrobatchSet {
 public:
  MicrobatchSet() = default;
  /// The contiguous set [first, first + count).
  static MicrobatchSet range(std::uint32_t first, std::uint32_t count);

  void add(std::uint32_t microbatch);
  void add_all(const MicrobatchSet& other);
  [[nodiscard]] bool contains(std::uint32_t microbatch) const;
  [[nodiscard]] std::uint32_t count() const;
  [[nodiscard]] bool empty() const { return count() == 0; }
  /// The members in ascending order.
  [[nodiscard]] std::vector<std::uint32_t> list() const;
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

  friend bool operator==(const ViewMember&, const ViewMember&) = default;
};

/// One membership of the job. Immutable: a change makes a new view.
struct View {
  ViewId id{};
  std::uint64_t key = 0;       ///< random; lets members of this view recognise each other
  Step committed{};            ///< the highest committed step; the view resumes at the one after it
  Rank source{};               ///< holds the state after `committed`; others may copy from it
  bool anyone_behind = false;  ///< true if some member does not have that state yet
  std::vector<ViewMember> members;

  friend bool operator==(const View&, const View&) = default;
};

}  // namespace mayfly::elastic
