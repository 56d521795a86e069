#include "elastic/net/flight_recorder.hpp"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "elastic/core/history.hpp"

namespace mayfly::elastic {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class FlightRecorderTest : public testing::Test {
 protected:
  FlightRecorderTest()
      : path_(fs::temp_directory_path() / ("mayfly_flight_" + std::to_string(::getpid()))) {
    fs::remove(path_);
  }
  ~FlightRecorderTest() override { fs::remove(path_); }
  [[nodiscard]] std::string file() const {
    std::ifstream in(path_);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  const fs::path path_;
};

TEST(History, OneFormForEverybody) {
  EXPECT_EQ(history_line(milliseconds(12), "evicted", MemberId{3}, "silent"),
            "12.000 ms: evicted 3 silent");
  EXPECT_EQ(history_line(milliseconds(1), CoordinatorEffect(coordinator_effect::Send{
                                              MemberId{2}, Stop{ViewId{4}, false}})),
            "1.000 ms: to 2 stop view 4 now");
  EXPECT_EQ(history_line(milliseconds(1), MemberEvent(member_event::Received{
                                              Dismiss{DismissReason::kEvicted, false, "late"}})),
            "1.000 ms: told dismiss late");
}

TEST(History, WhatComesAllTheTimeHasNoLine) {
  EXPECT_EQ(history_line({}, CoordinatorEvent(coordinator_event::Tick{})), "");
  EXPECT_EQ(history_line({}, CoordinatorEvent(coordinator_event::SentinelBeat{MemberId{1}})), "");
  EXPECT_EQ(
      history_line({}, CoordinatorEvent(coordinator_event::Received{MemberId{1}, Progress{}})), "");
}

TEST_F(FlightRecorderTest, KeepsTheLastLinesAndCutsLongOnes) {
  FlightRecorder recorder(path_);
  for (int i = 0; i < 2000; ++i) {
    recorder.received(Instant{},
                      CoordinatorEvent(coordinator_event::ConnectionLost{
                          MemberId{static_cast<std::uint64_t>(i)}, std::string(i, 'x')}));
  }
  recorder.decided(Instant{}, std::vector<CoordinatorEffect>{
                                  coordinator_effect::Note{"evicted", MemberId{3}, "hangs"}});
  recorder.write_if_requested();
  const std::string text = file();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 512);
  const std::size_t last_but_one = text.find("connection_lost 1999 xxx");
  ASSERT_NE(last_but_one, std::string::npos);
  EXPECT_LT(text.find('\n', last_but_one) - last_but_one, 240U);
}

TEST_F(FlightRecorderTest, IsWrittenForAReasonOnlyAndEachLineOnce) {
  FlightRecorder recorder(path_);
  recorder.received(Instant{}, CoordinatorEvent(coordinator_event::PauseAsked{true}));
  recorder.write_if_requested();
  EXPECT_FALSE(fs::exists(path_));
  recorder.decided(Instant{}, std::vector<CoordinatorEffect>{
                                  coordinator_effect::Note{"evicted", MemberId{3}, "hangs"}});
  recorder.write_if_requested();
  EXPECT_THAT(file(), HasSubstr("pause_asked\n"));
  EXPECT_THAT(file(), HasSubstr("evicted 3 hangs\n"));
  const std::string before = file();
  recorder.write_if_requested();
  EXPECT_EQ(file(), before);
  recorder.decided(Instant{}, std::vector<CoordinatorEffect>{
                                  coordinator_effect::Note{"lost", MemberId{4}, "killed"}});
  recorder.write_if_requested();
  EXPECT_THAT(file(), HasSubstr("lost 4 killed\n"));
  EXPECT_THAT(file().substr(before.size()), Not(HasSubstr("evicted 3")));
}

TEST_F(FlightRecorderTest, AMemberWritesWhenItsGroupBroke) {
  FlightRecorder recorder(path_);
  Stopped stopped;
  stopped.view = ViewId{2};
  stopped.failed = true;
  stopped.detail = "peer 1 closed";
  recorder.received(Instant{}, MemberEvent(member_event::TrainerStopped{stopped}));
  recorder.write_if_requested();
  EXPECT_THAT(file(), HasSubstr("trainer_stopped view 2 after step 0, failed peer 1 closed\n"));
}

TEST_F(FlightRecorderTest, AFatalSignalLeavesTheLastLines) {
  const pid_t child = ::fork();
  if (child == 0) {
    FlightRecorder recorder(path_);
    FlightRecorder::write_on_fatal_signals();
    recorder.received(Instant{}, CoordinatorEvent(coordinator_event::PauseAsked{true}));
    std::raise(SIGABRT);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  EXPECT_THAT(file(), HasSubstr("pause_asked\n"));
  EXPECT_THAT(file(), HasSubstr("fatal signal"));
}

}  // namespace
}  // namespace mayfly::elastic
