#include "collectives/nccl/comm_lifecycle.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace mayfly::collectives {
namespace {

using Step = CommLifecycle::Step;

constexpr Instant kStart{1'000'000'000};
constexpr Instant kDeadline = kStart + seconds(10);

// Drives a machine and checks the calls that it requests.
class Walk {
 public:
  CommLifecycle life{kDeadline};
  Instant now = kStart;

  CommLifecycle::Call expect(Step step, CommLifecycle::Ticket ticket = 0) {
    const CommLifecycle::Call call = life.next(now);
    EXPECT_EQ(static_cast<int>(call.step), static_cast<int>(step));
    EXPECT_EQ(call.ticket, ticket);
    return call;
  }
  void expect(Step step, NcclStatus answer, CommLifecycle::Ticket ticket = 0) {
    (void)expect(step, ticket);
    life.report(answer);
  }
  void connect() {
    expect(Step::kInit, NcclStatus::kInProgress);
    expect(Step::kPollComm, NcclStatus::kSuccess);
  }
  void run(CommLifecycle::Ticket ticket) {
    put_on_stream(ticket);
    expect(Step::kPollEvent, NcclStatus::kSuccess, ticket);
  }
  void put_on_stream(CommLifecycle::Ticket ticket) {
    expect(Step::kEnqueue, NcclStatus::kSuccess, ticket);
    expect(Step::kPollComm, NcclStatus::kSuccess);
    expect(Step::kConclude, NcclStatus::kSuccess, ticket);
  }
  void connect_and_meet() {
    connect();
    life.meet(kDeadline);
    run(0);
    EXPECT_TRUE(life.met());
    EXPECT_TRUE(life.take_finished().empty());
  }
  void expect_failed(CommLifecycle::Ticket ticket, Errc code) {
    EXPECT_EQ(failed_.size() + 1, ticket) << "in order";
    if (unread_.empty()) {
      unread_ = life.take_finished();
    }
    ASSERT_FALSE(unread_.empty());
    EXPECT_EQ(unread_.front().ticket, ticket);
    ASSERT_TRUE(unread_.front().failure.has_value());
    EXPECT_EQ(unread_.front().failure->code, code);
    failed_.push_back(ticket);
    unread_.erase(unread_.begin());
  }

 private:
  std::vector<CommLifecycle::Finished> unread_;
  std::vector<CommLifecycle::Ticket> failed_;
};

TEST(CommLifecycle, ConnectsPollsMeetsAndRests) {
  Walk walk;
  walk.expect(Step::kInit, NcclStatus::kInProgress);
  walk.expect(Step::kPollComm, NcclStatus::kInProgress);
  walk.expect(Step::kPollComm, NcclStatus::kInProgress);
  EXPECT_FALSE(walk.life.connected());
  walk.expect(Step::kPollComm, NcclStatus::kSuccess);
  EXPECT_TRUE(walk.life.connected());
  walk.expect(Step::kIdle);  // nothing runs on the device before meet()
  walk.life.meet(kDeadline);
  walk.run(0);
  EXPECT_TRUE(walk.life.met());
  walk.expect(Step::kIdle);
  walk.now = kDeadline + seconds(1);  // that deadline was only for meeting
  walk.expect(Step::kIdle);
}

TEST(CommLifecycle, RecordsNothingBeforeAnOperationIsOnTheStream) {
  Walk walk;
  walk.connect_and_meet();
  walk.life.submit(1);
  walk.life.submit(2);
  walk.expect(Step::kEnqueue, NcclStatus::kInProgress, 1);
  walk.expect(Step::kPollComm, NcclStatus::kInProgress);
  walk.expect(Step::kPollComm, NcclStatus::kSuccess);
  walk.expect(Step::kConclude, NcclStatus::kSuccess, 1);
  walk.put_on_stream(2);  // while 1 still runs; polled even though the call succeeded
  walk.expect(Step::kPollEvent, NcclStatus::kInProgress, 1);
  walk.expect(Step::kPollComm, NcclStatus::kSuccess);
  walk.expect(Step::kPollEvent, NcclStatus::kSuccess, 1);
  walk.expect(Step::kPollEvent, NcclStatus::kSuccess, 2);
  const auto finished = walk.life.take_finished();
  ASSERT_EQ(finished.size(), 2U);
  EXPECT_FALSE(finished[0].failure || finished[1].failure);
}

TEST(CommLifecycle, ReportsAFailedOperationOnlyAfterAbortAndADrainedStream) {
  Walk walk;
  walk.connect_and_meet();
  walk.life.submit(1);
  walk.life.submit(2);
  walk.put_on_stream(1);
  walk.expect(Step::kEnqueue, NcclStatus::kInProgress, 2);
  walk.expect(Step::kPollComm, NcclStatus::kRemoteError);
  walk.life.submit(3);
  walk.expect(Step::kAbort, NcclStatus::kSuccess);
  walk.expect(Step::kFence, NcclStatus::kSuccess);
  walk.expect(Step::kPollFence, NcclStatus::kInProgress);
  EXPECT_TRUE(walk.life.take_finished().empty());
  walk.expect(Step::kPollFence, NcclStatus::kSuccess);
  for (const CommLifecycle::Ticket ticket : {1U, 2U, 3U}) {
    walk.expect_failed(ticket, Errc::kPeerLost);
  }
  walk.expect(Step::kOver);
  walk.life.submit(4);
  walk.expect_failed(4, Errc::kPeerLost);
}

TEST(CommLifecycle, CanBeAbortedInEveryState) {
  // `calls` is the number of calls before the abort. Calls that take time are in progress first.
  for (int calls = 0; calls < 24; ++calls) {
    Walk walk;
    bool submitted = false;
    for (int i = 0; i < calls; ++i) {
      if (walk.life.connected() && !submitted) {
        submitted = true;
        walk.life.meet(kDeadline);
        walk.life.submit(1);
        walk.life.submit(2);
      }
      const CommLifecycle::Call call = walk.life.next(kStart);
      if (call.step == Step::kIdle) {
        break;
      }
      const bool polls = call.step == Step::kPollComm || call.step == Step::kPollEvent;
      const bool settles = call.step == Step::kInit || call.step == Step::kEnqueue;
      walk.life.report(settles || (polls && i % 3 == 0) ? NcclStatus::kInProgress
                                                        : NcclStatus::kSuccess);
    }
    walk.life.abort();
    walk.life.abort();
    std::vector<Step> steps;
    while (!walk.life.over()) {
      const CommLifecycle::Call call = walk.life.next(kStart);
      if (call.step == Step::kOver) {
        break;
      }
      steps.push_back(call.step);
      walk.life.report(NcclStatus::kSuccess);
      ASSERT_LT(steps.size(), 5U);
    }
    EXPECT_EQ(!steps.empty() && steps.front() == Step::kAbort, calls > 0) << calls;
    EXPECT_EQ(walk.life.failure()->code, Errc::kAborted);
    for (const auto& finished : walk.life.take_finished()) {
      EXPECT_GT(finished.ticket, 0U);
    }
    EXPECT_FALSE(walk.life.busy());
  }
}

TEST(CommLifecycle, AFailedInitIsAbortedAsItMayHaveLeftSomething) {
  Walk walk;
  walk.expect(Step::kInit, NcclStatus::kInternalError);
  walk.expect(Step::kAbort, NcclStatus::kSuccess);
  walk.expect(Step::kOver);
  EXPECT_EQ(walk.life.failure()->code, Errc::kIo);
  EXPECT_EQ(walk.life.failure()->status, NcclStatus::kInternalError);
}

TEST(CommLifecycle, ConnectingAndMeetingEndAtTheirDeadlines) {
  Walk connecting;
  connecting.expect(Step::kInit, NcclStatus::kInProgress);
  connecting.expect(Step::kPollComm, NcclStatus::kInProgress);
  connecting.now = kDeadline;
  connecting.expect(Step::kAbort, NcclStatus::kSuccess);
  EXPECT_EQ(connecting.life.failure()->code, Errc::kDeadline);

  Walk meeting;
  meeting.connect();
  meeting.now = kDeadline + seconds(1);  // connected long before it is used
  meeting.expect(Step::kIdle);
  meeting.life.meet(kDeadline + seconds(2));
  meeting.expect(Step::kEnqueue, NcclStatus::kInProgress, 0);
  meeting.expect(Step::kPollComm, NcclStatus::kInProgress);
  meeting.now = kDeadline + seconds(2);
  meeting.expect(Step::kAbort, NcclStatus::kSuccess);
  EXPECT_EQ(meeting.life.failure()->code, Errc::kDeadline);
}

TEST(CommLifecycle, ClosesInGoodOrder) {
  Walk walk;
  walk.connect_and_meet();
  walk.life.close(kStart + seconds(20));
  walk.expect(Step::kFinalize, NcclStatus::kInProgress);
  walk.expect(Step::kPollComm, NcclStatus::kInProgress);
  walk.expect(Step::kPollComm, NcclStatus::kSuccess);
  walk.expect(Step::kDestroy, NcclStatus::kSuccess);
  walk.expect(Step::kOver);
  EXPECT_FALSE(walk.life.failure().has_value());
  walk.life.submit(1);
  walk.expect_failed(1, Errc::kAborted);
}

TEST(CommLifecycle, ClosingThatTakesTooLongOrFailsIsAnAbort) {
  Walk late;
  late.connect_and_meet();
  late.life.close(kStart + seconds(1));
  late.expect(Step::kFinalize, NcclStatus::kInProgress);
  late.now = kStart + seconds(1);
  late.expect(Step::kAbort, NcclStatus::kSuccess);
  late.expect(Step::kOver);

  Walk broken;
  broken.connect_and_meet();
  broken.life.close(kStart + seconds(1));
  broken.expect(Step::kFinalize, NcclStatus::kRemoteError);
  broken.expect(Step::kAbort, NcclStatus::kSuccess);
  broken.expect(Step::kOver);
}

TEST(CommLifecycle, ABrokenDeviceIsNotWaitedFor) {
  Walk walk;
  walk.connect_and_meet();
  walk.life.submit(1);
  walk.expect(Step::kEnqueue, NcclStatus::kSuccess, 1);
  walk.expect(Step::kPollComm, NcclStatus::kSuccess);
  walk.expect(Step::kConclude, NcclStatus::kDeviceError, 1);
  walk.expect(Step::kAbort, NcclStatus::kDeviceError);
  walk.expect(Step::kFence, NcclStatus::kDeviceError);
  walk.expect(Step::kOver);
  walk.expect_failed(1, Errc::kIo);
}

TEST(CommLifecycle, TheFirstReasonStays) {
  Walk walk;
  walk.connect_and_meet();
  walk.life.submit(1);
  walk.expect(Step::kEnqueue, NcclStatus::kRemoteError, 1);
  walk.life.abort();
  walk.expect(Step::kAbort, NcclStatus::kSuccess);
  walk.expect(Step::kFence, NcclStatus::kSuccess);
  walk.expect(Step::kPollFence, NcclStatus::kDeviceError);
  walk.expect_failed(1, Errc::kPeerLost);
}

TEST(CommLifecycle, SaysWhatKindOfErrorItWas) {
  const std::vector<std::pair<NcclStatus, Errc>> kinds{
      {NcclStatus::kRemoteError, Errc::kPeerLost}, {NcclStatus::kSystemError, Errc::kIo},
      {NcclStatus::kDeviceError, Errc::kIo},       {NcclStatus::kInternalError, Errc::kIo},
      {NcclStatus::kBadCall, Errc::kInvalidInput},
  };
  for (const auto& [status, code] : kinds) {
    Walk walk;
    walk.expect(Step::kInit, status);
    EXPECT_EQ(walk.life.failure()->code, code);
  }
}

TEST(CommLifecycle, SleepsLongerTheLongerNothingHappens) {
  Walk walk;
  walk.expect(Step::kInit, NcclStatus::kInProgress);
  Duration longest{};
  for (int poll = 0; poll < 1000; ++poll) {
    const CommLifecycle::Call call = walk.expect(Step::kPollComm);
    EXPECT_GE(call.pause, longest);
    longest = call.pause;
    if (poll < 30 || poll > 50) {
      EXPECT_EQ(call.pause == Duration::zero(), poll < 30);
    }
    walk.life.report(NcclStatus::kInProgress);
  }
  EXPECT_LE(longest, milliseconds(1));
}

}  // namespace
}  // namespace mayfly::collectives
