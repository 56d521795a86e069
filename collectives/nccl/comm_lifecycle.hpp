#pragma once

// The life of one non-blocking communicator as a pure machine: the caller asks it for the next
// call, and reports the call's result. It owns no clock, thread or library, so that every order of
// events can be tested without a device.
//
//   new -> connecting -> open -> settling -> unconcluded -> open -> closing -> destroying -> over
//   any of these -> aborting -> fencing -> draining -> over
//
// The rules that it keeps: no operation is enqueued while a call is in progress. An operation's
// event is recorded only once the operation is on the stream. When a communicator fails, it is
// aborted and its stream is drained before any operation is reported as failed, so that no buffer
// is accessed after its operation was reported.

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "base/time.hpp"
#include "collectives/nccl/nccl_api.hpp"

namespace mayfly::collectives {

class CommLifecycle {
 public:
  /// Number of an operation, ascending. 0 is a barrier that shows that all members have arrived;
  /// see meet().
  using Ticket = std::uint64_t;

  enum class Step {
    kInit,       ///< NcclApi::init
    kPollComm,   ///< NcclApi::state
    kEnqueue,    ///< gate and NcclApi::enqueue of `ticket`
    kConclude,   ///< NcclApi::conclude of `ticket`
    kPollEvent,  ///< NcclApi::query of the event of `ticket`
    kFinalize,   ///< NcclApi::finalize
    kDestroy,    ///< NcclApi::destroy
    kAbort,      ///< NcclApi::abort
    kFence,      ///< NcclApi::record of an event behind everything on the stream
    kPollFence,  ///< NcclApi::query of that event
    kIdle,       ///< nothing to do until something is submitted or asked for
    kOver        ///< no call will ever be needed again
  };
  struct Call {
    Step step = Step::kIdle;
    Ticket ticket = 0;
    Duration pause{};  ///< may be waited before the call; ended early when there is news
  };
  /// Why a communicator ended.
  struct Failure {
    Errc code = Errc::kAborted;
    NcclStatus status = NcclStatus::kSuccess;  ///< NCCL's status, if that was the reason
  };
  struct Finished {
    Ticket ticket = 0;
    std::optional<Failure> failure;
  };

  /// Connecting fails with kDeadline from `deadline` on.
  explicit CommLifecycle(Instant deadline) : deadline_(deadline) {}

  /// Submits ticket 0, which fails with kDeadline from `deadline` on. Once, before submit().
  void meet(Instant deadline);
  /// Operations run in the order of their tickets.
  void submit(Ticket ticket);
  /// Ends everything, with kAborted. Any number of times; the first reason stays.
  void abort();
  /// No more operations will be submitted: finalizes the communicator, or aborts it from `deadline`
  /// on.
  void close(Instant deadline);

  /// The call to make now. kIdle and kOver are no calls and are not reported.
  [[nodiscard]] Call next(Instant now);
  /// The result of the call that next() returned last.
  void report(NcclStatus status);

  /// The communicator is formed; the resources that it needs on the device may still be allocated
  /// by the first operation.
  [[nodiscard]] bool connected() const { return connected_; }
  /// All members have connected, and operations can run.
  [[nodiscard]] bool met() const { return met_; }
  [[nodiscard]] bool over() const { return state_ == State::kOver; }
  [[nodiscard]] const std::optional<Failure>& failure() const { return failure_; }
  /// Whether operations are queued or running.
  [[nodiscard]] bool busy() const { return !pending_.empty() || !on_stream_.empty(); }
  /// Operations that ended since the last call, in order.
  [[nodiscard]] std::vector<Finished> take_finished();

 private:
  enum class State {
    kNew,
    kConnecting,
    kOpen,
    kSettling,
    kUnconcluded,
    kClosing,
    kDestroying,
    kAborting,
    kFencing,
    kDraining,
    kOver
  };

  void check_reasons_to_abort(Instant now);
  [[nodiscard]] Call call_when_open();
  [[nodiscard]] Call poll(Step step, Ticket ticket = 0) const;
  void fail(Failure failure);
  void fail(NcclStatus status);
  void on_progress(State when_done, NcclStatus status, State meanwhile);
  void on_connected(NcclStatus status);
  void on_poll_comm(NcclStatus status);
  void on_poll_event(NcclStatus status);
  void end();

  State state_ = State::kNew;
  Step last_ = Step::kIdle;
  std::optional<Instant> deadline_;  // of connecting, meeting or closing
  bool connected_ = false;
  bool met_ = false;
  bool abort_requested_ = false;
  bool close_requested_ = false;
  bool look_at_comm_ = false;     // polls of an event and of the communicator alternate
  std::uint32_t polls_ = 0;       // consecutive polls without news
  std::deque<Ticket> pending_;    // not yet given to NCCL
  std::deque<Ticket> on_stream_;  // given to NCCL; the last may still be settling
  std::optional<Failure> failure_;
  std::vector<Finished> finished_;
};

}  // namespace mayfly::collectives
