#pragma once

// What a shard and its follower owe each other. Pure; no thread matters.
//
// The leader numbers everything that it is told and sends it to the follower. Nothing leaves the
// leader - no parameters, no lease, no record of a step - before the follower has taken all that
// it follows from. So whatever anybody knows of the leader, the follower knows too, and when the
// leader is lost nothing has to be undone: what the follower lacks was answered to nobody, and its
// worker pushes it again.

#include <cstdint>

#include "base/result.hpp"

namespace mayfly::parameter_server {

/// The leader's side.
class LeaderLog {
 public:
  explicit LeaderLog(bool has_follower) : has_follower_(has_follower) {}

  [[nodiscard]] bool has_follower() const { return has_follower_; }
  /// The number of what the leader is told next, from 1.
  std::uint64_t add() { return ++last_; }
  [[nodiscard]] std::uint64_t last() const { return last_; }
  /// The follower has everything up to this number. kCorrupt if it cannot have it.
  [[nodiscard]] Result<void> taken(std::uint64_t through) {
    if (through > last_ || through < taken_) {
      return Error{Errc::kCorrupt, "a follower that has taken what it was not given"};
    }
    taken_ = through;
    return {};
  }
  /// What follows from anything up to this number may leave.
  [[nodiscard]] std::uint64_t safe() const { return has_follower_ ? taken_ : UINT64_MAX; }
  /// Nobody is waited for any more, for good: the view has no follower.
  void alone() { has_follower_ = false; }

 private:
  bool has_follower_;
  std::uint64_t last_ = 0;
  std::uint64_t taken_ = 0;
};

enum class EntryVerdict : std::uint8_t { kNew, kRepeat, kGap };

/// The follower's side.
class FollowerLog {
 public:
  /// kNew: it is to be carried out now, and counts as taken.
  [[nodiscard]] EntryVerdict judge(std::uint64_t entry) {
    if (entry <= taken_) {
      return EntryVerdict::kRepeat;  // sent again after a connection broke
    }
    if (entry != taken_ + 1) {
      return EntryVerdict::kGap;
    }
    taken_ = entry;
    return EntryVerdict::kNew;
  }
  [[nodiscard]] std::uint64_t taken() const { return taken_; }

 private:
  std::uint64_t taken_ = 0;
};

}  // namespace mayfly::parameter_server
