#include "base/prompt_thread.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <thread>

namespace mayfly {
namespace {

TEST(PromptThread, OtherwiseTheThreadIsScheduledAsBefore) {
  std::thread([] {
    const id_t self = static_cast<id_t>(::gettid());
    ASSERT_EQ(::setpriority(PRIO_PROCESS, self, 3), 0);
    wake_promptly();
    EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
    EXPECT_EQ(::getpriority(PRIO_PROCESS, self), 3);
  }).join();
}

TEST(PromptThread, AThreadOfAnotherClassStaysThere) {
  std::thread([] {
    const sched_param none{};
    ASSERT_EQ(::sched_setscheduler(0, SCHED_BATCH, &none), 0);
    wake_promptly();
    EXPECT_EQ(::sched_getscheduler(0), SCHED_BATCH);
  }).join();
}

}  // namespace
}  // namespace mayfly
