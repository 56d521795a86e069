#pragma once

// A run on the server's side: its state, and the part of its curves that a page lacks. One thread.

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "observe/run_follower.hpp"

namespace mayfly::observe {

/// The most buckets of one answer; for longer runs a coarser level is sent.
inline constexpr std::size_t kSeriesBucketsMax = 100'000;
/// The most buckets of one answer about a part of a run.
inline constexpr std::size_t kDetailBucketsMax = 20'000;

class ServedRun {
 public:
  explicit ServedRun(std::unique_ptr<RunFollower> follower);

  /// Reads new records; true if anything has changed.
  bool poll();
  /// Increases with every change.
  [[nodiscard]] std::uint64_t version() const { return version_; }
  /// The version of the last change other than added steps.
  [[nodiscard]] std::uint64_t facts_version() const { return facts_version_; }
  /// The position in the files up to which they were read, for the ids of events.
  [[nodiscard]] std::string position() const;
  [[nodiscard]] const RunFold& fold() const { return follower_->fold(); }
  [[nodiscard]] const std::string& name() const { return follower_->name(); }
  [[nodiscard]] const std::string& state();
  /// The curves from the first bucket on that has changed since `version`, for a page that has them
  /// at `level`; for version 0 all of them. The bytes are: the length of a JSON header in four
  /// bytes, the header, blanks up to a multiple of 8 bytes, and Curves::pack() of the kept and of
  /// the undone steps.
  [[nodiscard]] std::string series(std::uint64_t version, std::size_t level);
  /// `count` rows from `first` on, for a run whose series is coarser: at the finest level with at
  /// most kDetailBucketsMax buckets, in the same form as series(), without undone steps.
  [[nodiscard]] std::string detail(std::uint64_t first, std::uint64_t count);

 private:
  struct Change {
    std::uint64_t version = 0;
    std::size_t first_row = 0;
  };

  [[nodiscard]] std::uint64_t fact_bytes() const {
    return follower_->event_bytes() + follower_->member_bytes();
  }

  std::unique_ptr<RunFollower> follower_;
  std::uint64_t version_ = 1;
  std::uint64_t facts_version_ = 1;
  std::uint64_t fact_bytes_ = 0;
  std::deque<Change> changes_;
  std::string state_;
  std::uint64_t state_version_ = 0;
};

}  // namespace mayfly::observe
