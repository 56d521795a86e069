// The NCCL group on a real GPU, which several members, each a process, share. Times are recorded in
// the report; measured with sockets and a shared GPU, they do not apply to NVLink.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <thread>

#include "base/time.hpp"
#include "tests/gpu/member_process.hpp"

namespace mayfly::collectives::gpu_test {
namespace {

class NcclOnOneGpu : public testing::Test {
 protected:
  NcclOnOneGpu() {
    std::string pattern = testing::TempDir() + "mayfly-gpu-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~NcclOnOneGpu() override { std::filesystem::remove_all(folder_); }

  // Starts members with ids from `first` on; they are ready to form a view.
  Members start(int count, int first = 0) {
    Members members;
    for (int i = 0; i < count; ++i) {
      members.push_back(std::make_unique<MemberProcess>(first + i, folder_));
    }
    for (const auto& member : members) {
      EXPECT_EQ(member->hear(), "ready");
    }
    return members;
  }

  void form(const Members& members, int view) {
    tell_view(members, view);
    expect(members, "formed");
  }
  // Expects that every member's answer begins with `word`.
  static void expect(const Members& members, const std::string& word) {
    for (const auto& member : members) {
      const std::string answer = member->hear();
      EXPECT_EQ(answer.substr(0, answer.find(' ')), word)
          << "member " << member->id() << ": " << answer;
    }
  }
  static void expect_right(const Members& members, const std::string& check) {
    tell_all(members, check);
    for (const auto& member : members) {
      EXPECT_EQ(member->hear(), "right") << "member " << member->id();
    }
  }
  static void sum(const Members& members, int count) {
    tell_all(members, fmt::format("sum {}", count));
    expect(members, "sum");
  }

  static void pause(int ms) { std::this_thread::sleep_for(milliseconds(ms)); }
  static double since(Instant start) { return to_ms(monotonic_now() - start); }
  void record(const std::string& name, double ms) {
    RecordProperty(name + "_ms", fmt::format("{:.2f}", ms));
  }

  // One member of `members` is lost inside an operation; the others form `view` without it.
  void lose_one_and_form(Members& members, std::size_t victim, int view, bool by_kill) {
    tell_all(members, "reduce 524288");
    expect(members, "reducing");
    pause(300);
    std::unique_ptr<MemberProcess> lost = std::move(members[victim]);
    members.erase(members.begin() + static_cast<std::ptrdiff_t>(victim));
    const Instant start = monotonic_now();
    by_kill ? lost->kill() : lost->stop();
    tell_all(members, fmt::format("abort {}", view - 1));
    expect(members, "failed");
    record("lost_to_aborted", since(start));
    form(members, view);
    record("lost_to_formed", since(start));
    sum(members, 65536);
    record("lost_to_first_sum", since(start));
  }

  std::string folder_;
};

TEST_F(NcclOnOneGpu, OneToFourMembersComputeEveryOperationRight) {
  for (int size = 1; size <= 4; ++size) {
    SCOPED_TRACE(fmt::format("{} members", size));
    const Members members = start(size);
    const Instant start_of_form = monotonic_now();
    form(members, size);  // each size has another view number, because all use the same store
    record(fmt::format("form_{}", size), since(start_of_form));
    expect_right(members, "check");
    expect_right(members, "streams");
  }
}

TEST_F(NcclOnOneGpu, AbortFreesEveryMemberInAnOperationAndTheyFormAgain) {
  const Members members = start(3);
  form(members, 1);
  tell_all(members, "reduce 1048576");
  expect(members, "reducing");
  pause(200);
  const Instant told = monotonic_now();
  tell_all(members, "abort 1");
  expect(members, "failed");
  record("told_to_aborted", since(told));
  form(members, 2);
  expect_right(members, "check");
}

TEST_F(NcclOnOneGpu, AbortFreesAMemberThatWaitsForTheOthersAlone) {
  const Members members = start(2);
  form(members, 1);
  members[0]->tell("reduce 100000");
  EXPECT_EQ(members[0]->hear(), "reducing");
  pause(200);
  members[0]->tell("abort 1");
  const std::string answer = members[0]->hear();
  EXPECT_TRUE(answer.starts_with("failed aborted")) << answer;
  members[1]->tell("abort 1");
  form(members, 2);
  sum(members, 1000);
}

TEST_F(NcclOnOneGpu, SurvivorsOfAKilledMemberFormTheNextView) {
  Members members = start(4);
  form(members, 1);
  lose_one_and_form(members, 2, 2, true);
  expect_right(members, "check");
}

TEST_F(NcclOnOneGpu, SurvivorsOfAStoppedMemberFormTheNextView) {
  Members members = start(4);
  form(members, 1);
  lose_one_and_form(members, 1, 2, false);
}

TEST_F(NcclOnOneGpu, RankZeroCanBeLostToo) {
  Members members = start(3);
  form(members, 1);
  lose_one_and_form(members, 0, 2, true);
  lose_one_and_form(members, 0, 3, true);
}

TEST_F(NcclOnOneGpu, SurvivorsOfAKillWhileFormingFormTheNextView) {
  Members members = start(3);
  tell_view(members, 1);
  pause(50);
  members.back()->kill();
  members.pop_back();
  pause(50);
  tell_all(members, "abort 1");
  for (const auto& member : members) {
    const std::string answer = member->hear();
    EXPECT_TRUE(answer.starts_with("failed") || answer.starts_with("formed")) << answer;
  }
  form(members, 2);
  sum(members, 1000);
}

TEST_F(NcclOnOneGpu, AViewGrowsByAMember) {
  Members members = start(2);
  form(members, 1);
  sum(members, 1000);
  Members joiner = start(1, 2);
  const Instant start_of_change = monotonic_now();
  members.push_back(std::move(joiner.front()));
  form(members, 2);
  sum(members, 1000);
  record("planned_change_to_first_sum", since(start_of_change));
  expect_right(members, "check");
}

struct Footprint {
  long long device_bytes = 0;
  long long descriptors = 0;
  long long threads = 0;
};

Footprint footprint_of(MemberProcess& member) {
  member.tell("footprint");
  std::istringstream answer(member.hear());
  std::string word;
  Footprint footprint;
  answer >> word >> footprint.device_bytes >> footprint.descriptors >> footprint.threads;
  EXPECT_EQ(word, "footprint");
  return footprint;
}

TEST_F(NcclOnOneGpu, TwentyViewsLeaveNothingBehind) {
  const Members members = start(3);
  Footprint after_some;
  std::vector<double> times;
  for (int view = 1; view <= 21; ++view) {
    const Instant start_of_view = monotonic_now();
    form(members, view);
    sum(members, 65536);
    times.push_back(since(start_of_view));
    if (view % 2 == 0) {  // every other view ends by an abort in an operation
      tell_all(members, "reduce 65536");
      expect(members, "reducing");
      tell_all(members, fmt::format("abort {}", view));
      expect(members, "failed");
    }
    if (view == 5) {
      after_some = footprint_of(*members[1]);
    }
  }
  const Footprint at_the_end = footprint_of(*members[1]);
  constexpr long long kSlackBytes = 64LL << 20;
  EXPECT_LE(at_the_end.device_bytes, after_some.device_bytes + kSlackBytes);
  EXPECT_LE(at_the_end.descriptors, after_some.descriptors + 2);
  EXPECT_LE(at_the_end.threads, after_some.threads + 2);
  std::sort(times.begin(), times.end());
  record("view_to_first_sum_median", times[times.size() / 2]);
  record("view_to_first_sum_largest", times.back());
}

}  // namespace
}  // namespace mayfly::collectives::gpu_test
