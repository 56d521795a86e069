#pragma once

// A Group over any GroupEngine: numbers the operations and runs them one after the other. A thread
// that waits for an operation which has not begun runs it itself, which saves two thread switches;
// the group's own thread runs the others. Functions that all transports need to form a group are
// here, too.

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/ids.hpp"
#include "base/result.hpp"
#include "collectives/group.hpp"
#include "collectives/group_engine.hpp"

namespace mayfly::collectives {

/// A group whose members are connected through `engine`, which is null exactly for a group of one.
/// Sequence number 0 is that of run_first_barrier(); the group's own operations count from 1.
[[nodiscard]] std::unique_ptr<Group> make_queued_group(ViewId view, Rank rank, std::uint32_t size,
                                                       std::unique_ptr<GroupEngine> engine);

/// Runs a barrier on a new engine. When it succeeds every member of the view has formed its engine.
/// Returns the sum of all members' votes, by which they can agree on a setting before they
/// continue. Fails like GroupEngine::advance(), or with kDeadline.
[[nodiscard]] Result<std::int32_t> run_first_barrier(GroupEngine& engine, std::int32_t vote,
                                                     Instant deadline);

/// kInvalidInput for groups that no transport can form: without peers, or with a rank outside of
/// them.
[[nodiscard]] Result<void> check_spec(const GroupSpec& spec);

/// The error that form() returns for a view that was given up.
[[nodiscard]] inline Error given_up(ViewId view) {
  return {Errc::kAborted, "view " + std::to_string(value(view)) + " was given up"};
}

/// Remembers which views were given up, and stops the formation that runs now if its view is among
/// them. enter() is for the forming thread, give_up_on() for any thread.
class FormingGuard {
 public:
  /// Ends the formation when destroyed.
  class Entry {
   public:
    explicit Entry(FormingGuard& guard) : guard_(guard) {}
    ~Entry() { guard_.leave(); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    FormingGuard& guard_;
  };

  /// `stop` is called as soon as `view` is given up, which may be at once and on any thread, but
  /// not after the Entry is gone. It must neither block nor throw.
  [[nodiscard]] Entry enter(ViewId view, std::function<void()> stop) {
    const std::lock_guard lock(mutex_);
    if (given_up_ && view <= *given_up_) {
      stop();
    }
    stop_ = std::move(stop);
    forming_view_ = view;
    return Entry(*this);
  }

  void give_up_on(ViewId view) noexcept {
    const std::lock_guard lock(mutex_);
    given_up_ = given_up_ ? std::max(*given_up_, view) : view;
    if (stop_ && forming_view_ <= view) {
      stop_();
    }
  }

 private:
  void leave() {
    const std::lock_guard lock(mutex_);
    stop_ = nullptr;
  }

  std::mutex mutex_;
  std::optional<ViewId> given_up_;  // this and every older view; guarded by mutex_
  std::function<void()> stop_;      // empty: no formation runs; guarded by mutex_
  ViewId forming_view_{};           // guarded by mutex_
};

}  // namespace mayfly::collectives
