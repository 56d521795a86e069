#include "collectives/nccl/comm_lifecycle.hpp"

#include <chrono>
#include <utility>

#include "base/check.hpp"

namespace mayfly::collectives {
namespace {

using std::chrono::microseconds;

Errc code_of(NcclStatus status) {
  switch (status) {
    case NcclStatus::kRemoteError: return Errc::kPeerLost;
    case NcclStatus::kBadCall: return Errc::kInvalidInput;
    default: return Errc::kIo;
  }
}

// Small operations are done within microseconds, and a thread that slept would double their time;
// after that, sleeping longer costs little and leaves the core to others.
Duration pause_after(std::uint32_t polls) {
  constexpr std::uint32_t kAtOnce = 40;
  constexpr std::uint32_t kSoon = 400;
  if (polls < kAtOnce) {
    return Duration::zero();
  }
  return polls < kSoon ? microseconds(20) : microseconds(200);
}

}  // namespace

void CommLifecycle::meet(Instant deadline) {
  deadline_ = deadline;
  submit(0);
}

void CommLifecycle::submit(Ticket ticket) {
  if (over()) {
    finished_.push_back({ticket, failure_.value_or(Failure{})});
    return;
  }
  pending_.push_back(ticket);
  polls_ = 0;
}

void CommLifecycle::abort() {
  abort_requested_ = true;
}

void CommLifecycle::close(Instant deadline) {
  close_requested_ = true;
  deadline_ = deadline;
}

void CommLifecycle::check_reasons_to_abort(Instant now) {
  if (abort_requested_) {
    fail(Failure{.code = Errc::kAborted});
  } else if (deadline_ && now >= *deadline_) {
    fail(Failure{.code = Errc::kDeadline});
  }
}

CommLifecycle::Call CommLifecycle::poll(Step step, Ticket ticket) const {
  return {.step = step, .ticket = ticket, .pause = pause_after(polls_)};
}

CommLifecycle::Call CommLifecycle::call_when_open() {
  if (!pending_.empty()) {
    return {.step = Step::kEnqueue, .ticket = pending_.front()};
  }
  if (!on_stream_.empty()) {
    return look_at_comm_ ? Call{.step = Step::kPollComm}
                         : poll(Step::kPollEvent, on_stream_.front());
  }
  return {.step = close_requested_ ? Step::kFinalize : Step::kIdle};
}

CommLifecycle::Call CommLifecycle::next(Instant now) {
  const bool alive = state_ < State::kDestroying;
  if (alive && !failure_) {
    check_reasons_to_abort(now);
  }
  const Call call = [&]() -> Call {
    switch (state_) {
      case State::kNew: return {.step = Step::kInit};
      case State::kConnecting:
      case State::kSettling:
      case State::kClosing: return poll(Step::kPollComm);
      case State::kUnconcluded: return {.step = Step::kConclude, .ticket = on_stream_.back()};
      case State::kOpen: return call_when_open();
      case State::kDestroying: return {.step = Step::kDestroy};
      case State::kAborting: return {.step = Step::kAbort};
      case State::kFencing: return {.step = Step::kFence};
      case State::kDraining: return poll(Step::kPollFence);
      case State::kOver: return {.step = Step::kOver};
    }
    UNREACHABLE("every state has a call");
  }();
  last_ = call.step;
  return call;
}

void CommLifecycle::fail(Failure failure) {
  failure_ = failure;
  polls_ = 0;
  // Before init there is nothing to abort.
  if (state_ == State::kNew) {
    end();
  } else {
    state_ = State::kAborting;
  }
}

void CommLifecycle::fail(NcclStatus status) {
  fail(Failure{.code = code_of(status), .status = status});
}

void CommLifecycle::on_progress(State when_done, NcclStatus status, State meanwhile) {
  if (status == NcclStatus::kSuccess) {
    state_ = when_done;
    polls_ = 0;
  } else if (status == NcclStatus::kInProgress) {
    state_ = meanwhile;
    ++polls_;
  } else {
    fail(status);
  }
}

void CommLifecycle::on_connected(NcclStatus status) {
  on_progress(State::kOpen, status, State::kConnecting);
  if (state_ == State::kOpen) {
    connected_ = true;
    deadline_.reset();
  }
}

void CommLifecycle::on_poll_comm(NcclStatus status) {
  look_at_comm_ = false;
  switch (state_) {
    case State::kConnecting: return on_connected(status);
    case State::kSettling: return on_progress(State::kUnconcluded, status, State::kSettling);
    case State::kClosing: return on_progress(State::kDestroying, status, State::kClosing);
    case State::kOpen:
      if (status != NcclStatus::kSuccess && status != NcclStatus::kInProgress) {
        fail(status);
      }
      return;
    default: UNREACHABLE("the communicator is not polled in this state");
  }
}

void CommLifecycle::on_poll_event(NcclStatus status) {
  if (status == NcclStatus::kInProgress) {
    ++polls_;
    look_at_comm_ = true;
    return;
  }
  if (status != NcclStatus::kSuccess) {
    return fail(status);
  }
  polls_ = 0;
  const Ticket ticket = on_stream_.front();
  on_stream_.pop_front();
  if (ticket == 0) {
    met_ = true;
    deadline_.reset();
  } else {
    finished_.push_back({ticket, std::nullopt});
  }
}

void CommLifecycle::report(NcclStatus status) {
  switch (std::exchange(last_, Step::kIdle)) {
    case Step::kInit:
      state_ = State::kConnecting;  // even a failed init may leave something to abort
      return on_connected(status);
    case Step::kPollComm: return on_poll_comm(status);
    case Step::kEnqueue:
      // Even after a failed call there may be an operation on the stream. And after a successful
      // call the communicator is polled, too, because the end of a fused launch only shows that the
      // launch was accepted.
      on_stream_.push_back(pending_.front());
      pending_.pop_front();
      return on_progress(State::kSettling, status, State::kSettling);
    case Step::kConclude: return on_progress(State::kOpen, status, State::kOpen);
    case Step::kPollEvent: return on_poll_event(status);
    case Step::kFinalize: return on_progress(State::kDestroying, status, State::kClosing);
    case Step::kDestroy: return end();
    case Step::kAbort: state_ = State::kFencing; return on_stream_.empty() ? end() : void();
    case Step::kFence:
      state_ = State::kDraining;
      return status == NcclStatus::kSuccess ? void() : end();
    case Step::kPollFence:
      ++polls_;
      // An error means that this process cannot use the device any more.
      return status == NcclStatus::kInProgress ? void() : end();
    case Step::kIdle:
    case Step::kOver: break;
  }
  UNREACHABLE("report() follows a call that next() asked for");
}

void CommLifecycle::end() {
  state_ = State::kOver;
  for (std::deque<Ticket>* const queue : {&on_stream_, &pending_}) {
    for (const Ticket ticket : *queue) {
      if (ticket != 0) {
        finished_.push_back({ticket, failure_.value_or(Failure{})});
      }
    }
    queue->clear();
  }
}

std::vector<CommLifecycle::Finished> CommLifecycle::take_finished() {
  return std::exchange(finished_, {});
}

}  // namespace mayfly::collectives
