#include "base/usable_cores.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "base/control_group.hpp"

namespace mayfly {
namespace {

TEST(UsableCores, AreThoseOfTheThreadsMask) {
  EXPECT_GE(usable_cores(), 1u);
  EXPECT_LE(usable_cores(), std::thread::hardware_concurrency());
  std::thread([] {
    cpu_set_t mask;
    ASSERT_EQ(::sched_getaffinity(0, sizeof mask, &mask), 0);
    int core = 0;
    while (!CPU_ISSET(core, &mask)) {
      ++core;
    }
    CPU_ZERO(&mask);
    CPU_SET(core, &mask);
    ASSERT_EQ(::sched_setaffinity(0, sizeof mask, &mask), 0);
    EXPECT_EQ(usable_cores(), 1u);
    EXPECT_GE(cores_of_all(), 1u);
  }).join();
  EXPECT_GE(cores_of_all(), usable_cores());
  EXPECT_LE(cores_of_all(), std::thread::hardware_concurrency());
}

TEST(ShareOfCores, DividesThoseThatSeveralHave) {
  EXPECT_EQ(share_of_cores(128, 128, 8), 16u);
  EXPECT_EQ(share_of_cores(128, 16, 8), 16u) << "each is bound to its share already";
  EXPECT_EQ(share_of_cores(128, 4, 8), 4u);
  EXPECT_EQ(share_of_cores(16, 16, 8), 2u) << "all are in a container of 16";
  EXPECT_EQ(share_of_cores(2, 2, 8), 1u);
  EXPECT_EQ(share_of_cores(2, 0, 0), 1u);
}

TEST(CoresInList, AreCountedByRange) {
  EXPECT_EQ(cores_in_list("0\n"), 1u);
  EXPECT_EQ(cores_in_list("0-15\n"), 16u);
  EXPECT_EQ(cores_in_list("0-3,8,10-11\n"), 7u);
  for (const char* none : {"", "\n", "all", "3-1", "0-", "-4", "0-3,"}) {
    EXPECT_EQ(cores_in_list(none), 0u) << none;
  }
}

TEST(ControlGroups, EndWithTheOutermost) {
  for (const auto& groups : {control_groups(), control_groups("cpu"), control_groups("memory")}) {
    for (std::size_t i = 1; i < groups.size(); ++i) {
      EXPECT_LT(groups[i].size(), groups[i - 1].size());
    }
  }
  EXPECT_TRUE(control_groups("no-such-controller").empty());
}

TEST(LeadingNumber, IsNoneInTheWordForNoLimit) {
  EXPECT_EQ(leading_number(" 150000\n"), 150'000u);
  EXPECT_FALSE(leading_number("max 100000"));
  EXPECT_FALSE(leading_number("-1\n"));
  EXPECT_FALSE(leading_number(""));
}

}  // namespace
}  // namespace mayfly
