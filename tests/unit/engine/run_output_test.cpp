#include "engine/run/run_output.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "engine/run/record_json.hpp"
#include "tests/unit/engine/nobody_listens.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RunOutputTest : public ::testing::Test {
 protected:
  RunOutputTest() {
    JobConfig config;
    config.tensorboard = false;
    config.run_dir = folder_ / "run";
    directory_ = RunDirectory::create(config).value();
    output_ = std::make_unique<RunOutput>(*directory_, listener_, std::vector<MemberRecord>());
  }

  /// The causes in the events of this kind.
  [[nodiscard]] std::vector<std::string> causes(const std::string& kind) const {
    std::vector<std::string> all;
    EXPECT_TRUE(
        for_each_line(directory_->path() + "/events.jsonl", 0, [&](const json::object& event) {
          if (field_of<std::string>(event, "kind") == kind) {
            all.push_back(field_of<std::string>(event, "why"));
          }
        }).ok());
    return all;
  }
  bool fail(const std::string& kind, const std::string& why) {
    return output_->turn().failed(kind, {{"why", why}}, why, "told: " + why);
  }

  test_support::TemporaryFolder folder_;
  test_support::KeepsLines listener_;
  std::unique_ptr<RunDirectory> directory_;
  std::unique_ptr<RunOutput> output_;
};

TEST_F(RunOutputTest, AFailureIsToldOncePerCauseAndIsAlwaysOnRecord) {
  EXPECT_TRUE(fail("copy", "full"));
  EXPECT_FALSE(fail("copy", "full"));
  EXPECT_TRUE(fail("upload", "full")) << "another kind";
  EXPECT_TRUE(fail("copy", "cut off"));
  output_->turn().worked("copy");
  EXPECT_TRUE(fail("copy", "cut off")) << "it had worked meanwhile";
  EXPECT_THAT(listener_.lines,
              ElementsAre("told: full", "told: full", "told: cut off", "told: cut off"));
  EXPECT_THAT(causes("copy"), ElementsAre("full", "full", "cut off", "cut off"));
}

TEST_F(RunOutputTest, ATurnKeepsOtherThreadsFromWriting) {
  std::future<bool> other;
  {
    RunOutput::Turn turn = output_->turn();
    other = std::async(std::launch::async, [this] { return fail("copy", "full"); });
    EXPECT_EQ(other.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
    EXPECT_THAT(listener_.lines, IsEmpty());
    turn.listener.on_event("first");
  }
  EXPECT_TRUE(other.get());
  EXPECT_THAT(listener_.lines, ElementsAre("first", "told: full"));
}

TEST_F(RunOutputTest, TheJournalGoesOnFromTheLinesOfAnEarlierProcess) {
  MemberRecord before;
  before.member = 7;
  before.phase = "active";
  RunOutput output(*directory_, listener_, {before});
  RunOutput::Turn turn = output.turn();
  EXPECT_FALSE(turn.journal.connected(1, 7, "node").has_value()) << "it is known to be there";
  EXPECT_TRUE(turn.journal.connected(1, 8, "node").has_value());
}

}  // namespace
}  // namespace mayfly::engine
