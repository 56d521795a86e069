#include "engine/run/trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <thread>

#include "base/file.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

using ::testing::HasSubstr;

class TraceTest : public ::testing::Test {
 protected:
  std::string part(std::uint64_t member) const {
    return folder.path() + "/member-" + std::to_string(member) + ".json";
  }
  static std::string text_of(const std::string& path) {
    return read_text_file(path, 1 << 24).value();
  }
  static std::size_t count(const boost::json::array& events, std::string_view name) {
    std::size_t found = 0;
    for (const boost::json::value& event : events) {
      found += event.at("name").as_string() == name ? 1 : 0;
    }
    return found;
  }

  mayfly::test_support::TemporaryFolder folder;
};

TEST_F(TraceTest, AClosedFileIsStrictJsonWithWhatWasRecorded) {
  {
    Trace trace({0, 50});
    TraceLane* lane = trace.lane("compute 0");
    ASSERT_TRUE(trace.open(folder.path(), MemberId{7}).ok());
    lane->span("forward", Instant{1500}, Instant{4500}, 3, {"microbatch", 2});
    trace.flush();
    lane->span("update", Instant{5000}, Instant{6000}, 3);
  }
  const auto events = boost::json::parse(text_of(part(7))).as_array();
  ASSERT_EQ(count(events, "forward"), 1U);
  ASSERT_EQ(count(events, "update"), 1U);
  for (const boost::json::value& event : events) {
    EXPECT_EQ(event.at("pid").as_int64(), 7);
    if (event.at("name").as_string() == "forward") {
      EXPECT_EQ(event.at("ph").as_string(), "X");
      EXPECT_DOUBLE_EQ(event.at("ts").to_number<double>(), 1.5);
      EXPECT_DOUBLE_EQ(event.at("dur").to_number<double>(), 3.0);
      EXPECT_EQ(event.at("args").at("step").as_int64(), 3);
      EXPECT_EQ(event.at("args").at("microbatch").as_int64(), 2);
    }
  }
}

TEST_F(TraceTest, LanesThatComeLaterAreIntroducedToo) {
  {
    Trace trace({0, 50});
    (void)trace.lane("trainer");
    ASSERT_TRUE(trace.open(folder.path(), MemberId{1}).ok());
    trace.flush();
    trace.lane("communication")->span("all-reduce", Instant{1}, Instant{2}, 1);
  }
  const std::string text = text_of(part(1));
  EXPECT_THAT(text, HasSubstr(R"("name":"trainer")"));
  EXPECT_THAT(text, HasSubstr(R"("name":"communication")"));
  EXPECT_EQ(count(boost::json::parse(text).as_array(), "thread_name"), 2U);
}

TEST_F(TraceTest, AMemberThatJoinsAgainHasItsLanesByName) {
  {
    Trace trace({0, 50});
    TraceLane* lane = trace.lane("compute 0");
    ASSERT_TRUE(trace.open(folder.path(), MemberId{1}).ok());
    lane->span("first", Instant{1}, Instant{2}, 1);
    trace.flush();
    ASSERT_TRUE(trace.open(folder.path(), MemberId{1}).ok()) << "under its id";
    lane->span("second", Instant{3}, Instant{4}, 2);
    ASSERT_TRUE(trace.open(folder.path(), MemberId{2}).ok()) << "under another one";
    lane->span("third", Instant{5}, Instant{6}, 3);
  }
  const auto before = boost::json::parse(text_of(part(1))).as_array();
  EXPECT_EQ(count(before, "first") + count(before, "second"), 2U);
  EXPECT_EQ(count(before, "thread_name"), 1U);
  const auto after = boost::json::parse(text_of(part(2))).as_array();
  EXPECT_EQ(count(after, "third"), 1U);
  EXPECT_EQ(count(after, "thread_name"), 1U);
}

TEST_F(TraceTest, SpansAreRecordedInTheWindowOnly) {
  Trace trace({2, 3});
  TraceLane* lane = trace.lane("trainer");
  std::vector<TraceEvent> events;
  for (std::uint64_t step = 0; step < 5; ++step) {
    trace.at_step(step);
    const TraceSpan span(lane, "step", step);
  }
  lane->drain(events);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].step, 2U);
  EXPECT_LE(events[0].begin, events[0].end);
}

TEST_F(TraceTest, WithoutALaneASpanIsNothing) {
  const TraceSpan span(nullptr, "step", 1);
  EXPECT_EQ(lane_of(nullptr, "trainer"), nullptr);
}

TEST_F(TraceTest, AFullLaneDropsAndCountsInsteadOfGrowing) {
  Trace trace({0, 1});
  TraceLane* lane = trace.lane("trainer");
  constexpr std::size_t kMany = 100000;
  for (std::size_t i = 0; i < kMany; ++i) {
    lane->span("tick", Instant{1}, Instant{2}, i);
  }
  std::vector<TraceEvent> events;
  lane->drain(events);
  EXPECT_GT(lane->dropped(), 0U);
  EXPECT_EQ(events.size() + lane->dropped(), kMany);
  EXPECT_EQ(events.back().step + 1, events.size()) << "the oldest are kept, in order";
}

TEST_F(TraceTest, ALaneIsDrainedWhileItsThreadRecords) {
  Trace trace({0, 1});
  TraceLane* lane = trace.lane("compute");
  constexpr std::uint64_t kMany = 50000;
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < kMany; ++i) {
      const Instant at{static_cast<std::int64_t>(i)};
      lane->span("tick", at, at, i);
    }
  });
  std::vector<TraceEvent> events;
  while (events.size() + lane->dropped() < kMany) {
    lane->drain(events);
  }
  writer.join();
  for (std::size_t i = 1; i < events.size(); ++i) {
    ASSERT_LT(events[i - 1].step, events[i].step);
  }
}

TEST_F(TraceTest, MergingLeavesOutWhatAKillTore) {
  {
    Trace trace({0, 1});
    TraceLane* lane = trace.lane("trainer");
    ASSERT_TRUE(trace.open(folder.path(), MemberId{1}).ok());
    lane->span("step", Instant{1}, Instant{2}, 1);
  }
  {
    std::ofstream torn(part(2));
    torn << "[\n{\"name\":\"step\",\"ph\":\"X\",\"pid\":2,\"tid\":0,\"ts\":1,\"dur\":1},\n"
         << R"({"name":"step","ph":"X","pi)";
  }
  const std::string merged = folder.path() + "/all.trace";
  ASSERT_TRUE(merge_traces(folder.path(), merged).ok());
  EXPECT_EQ(count(boost::json::parse(text_of(merged)).as_array(), "step"), 2U);
}

TEST_F(TraceTest, MergingNothingIsAnError) {
  const Result<void> merged = merge_traces(folder.path(), folder.path() + "/all.trace");
  ASSERT_FALSE(merged.ok());
  EXPECT_EQ(merged.error().code, Errc::kNotFound);
  EXPECT_THAT(merged.error().detail, HasSubstr(folder.path()));
}

}  // namespace
}  // namespace mayfly::engine
