#include "engine/program/mailbox.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace mayfly::engine {
namespace {

using Kind = ProgramTask::Kind;

constexpr Duration kLong = seconds(60);

TEST(Mailbox, HandsOutMicrobatchesInTheirOrder) {
  Mailbox mailbox;
  mailbox.add({Kind::kMicrobatch, 3, 5});
  mailbox.add({Kind::kMicrobatch, 3, 2});
  EXPECT_EQ(mailbox.next(kLong)->number, 5u);
  mailbox.done();
  EXPECT_EQ(mailbox.next(kLong)->number, 2u);
  EXPECT_EQ(mailbox.current()->number, 2u);
  mailbox.done();
  EXPECT_TRUE(mailbox.wait_until_done());
  EXPECT_FALSE(mailbox.next(milliseconds(1)));
}

TEST(Mailbox, WhatIsAskedForGoesBeforeTheQueueAndIsDoneWithTheNextTask) {
  Mailbox mailbox;
  mailbox.add({Kind::kMicrobatch, 3, 5});
  std::atomic<bool> is_updated{false};
  std::thread trainer([&] {
    mailbox.ask({Kind::kUpdate, 2});
    is_updated = true;
  });
  while (true) {
    const auto task = mailbox.next(kLong);
    if (task->kind == Kind::kUpdate) {
      break;
    }
    mailbox.done();  // the trainer's thread has not asked yet
    mailbox.add({Kind::kMicrobatch, 3, 5});
  }
  EXPECT_FALSE(is_updated);
  EXPECT_EQ(mailbox.next(kLong)->kind, Kind::kMicrobatch);
  trainer.join();
  EXPECT_TRUE(is_updated);
  mailbox.done();
}

TEST(Mailbox, AnInterruptEndsTheTrainersWaitAndNotTheTask) {
  Mailbox mailbox;
  mailbox.add({Kind::kMicrobatch, 1, 0});
  mailbox.add({Kind::kMicrobatch, 1, 1});
  ASSERT_TRUE(mailbox.next(kLong));
  std::thread interrupter([&] { mailbox.interrupt(); });
  EXPECT_FALSE(mailbox.wait_until_done());
  interrupter.join();
  EXPECT_TRUE(mailbox.is_interrupted());
  EXPECT_TRUE(mailbox.current());
  std::thread program([&] { mailbox.done(); });
  mailbox.discard();
  program.join();
  mailbox.clear_interrupt();
  EXPECT_TRUE(mailbox.wait_until_done());
  EXPECT_FALSE(mailbox.next(milliseconds(1))) << "what had not begun was dropped";
}

TEST(Mailbox, TheEndStays) {
  Mailbox mailbox;
  mailbox.add({Kind::kMicrobatch, 1, 0});
  mailbox.end();
  EXPECT_EQ(mailbox.next(kLong)->kind, Kind::kEnd);
  EXPECT_EQ(mailbox.next(kLong)->kind, Kind::kEnd);
}

}  // namespace
}  // namespace mayfly::engine
