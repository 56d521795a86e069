#include "base/thread_priority.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <thread>

namespace mayfly {
namespace {

TEST(LowLatencySlice, OtherwiseTheThreadIsScheduledAsBefore) {
  std::thread([] {
    const id_t self = static_cast<id_t>(::gettid());
    ASSERT_EQ(::setpriority(PRIO_PROCESS, self, 3), 0);
    use_low_latency_slice();
    EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
    EXPECT_EQ(::getpriority(PRIO_PROCESS, self), 3);
  }).join();
}

TEST(LowLatencySlice, AThreadOfAnotherClassStaysThere) {
  std::thread([] {
    const sched_param none{};
    ASSERT_EQ(::sched_setscheduler(0, SCHED_BATCH, &none), 0);
    use_low_latency_slice();
    EXPECT_EQ(::sched_getscheduler(0), SCHED_BATCH);
  }).join();
}

}  // namespace
}  // namespace mayfly
