// Commands to a running coordinator.

#include <gtest/gtest.h>

#include "tests/integration/elastic/test_job.hpp"

namespace mayfly::elastic {
namespace {

class Operator : public testing::Test {
 protected:
  Operator() : first_(job_.add_worker()), second_(job_.add_worker()) {
    view_ = job_.observer().wait_for_view({first_->id(), second_->id()});
    first_->wait_for_view(view_.id);
    second_->wait_for_view(view_.id);
  }

  TestJob job_{2};
  std::unique_ptr<ToyWorker> first_;
  std::unique_ptr<ToyWorker> second_;
  View view_;
};

TEST_F(Operator, UnknownVerbsGoToTheObserver) {
  EXPECT_EQ(job_.command("scale", "8").text, "heard scale 8");
}

TEST_F(Operator, DrainRemovesOneMember) {
  EXPECT_TRUE(job_.command("drain", std::to_string(value(first_->id()))).ok);
  EXPECT_EQ(first_->wait_for_leave().reason, DismissReason::kDrained);
  job_.observer().wait_for_view({second_->id()});
}

TEST_F(Operator, DrainOfNobodyIsAnError) {
  for (const std::string argument : {"", "x", "1x", "-1", "99999"}) {
    EXPECT_FALSE(job_.command("drain", argument).ok) << argument;
  }
}

TEST_F(Operator, PauseAndResumeGoThroughANewView) {
  EXPECT_TRUE(job_.command("pause").ok);
  job_.observer().wait_until(
      [](const auto& seen) {
        for (const auto& each : seen.notes) {
          if (each.note.kind == "paused") {
            return true;
          }
        }
        return false;
      },
      "paused");
  EXPECT_TRUE(job_.command("resume").ok);
  job_.observer().wait_until([](const auto& seen) { return seen.views.size() == 2; }, "a view");
}

TEST_F(Operator, StopEndsTheJobWithACheckpoint) {
  EXPECT_TRUE(job_.command("stop").ok);
  const auto first = first_->wait_for_leave();
  const auto second = second_->wait_for_leave();
  EXPECT_EQ(first.reason, DismissReason::kJobStopped);
  EXPECT_NE(first.write_checkpoint, second.write_checkpoint);
  job_.observer().wait_until([](const auto& seen) { return !seen.outcomes.empty(); }, "the end");
  EXPECT_EQ(job_.observer().seen().outcomes[0], Outcome::kStopped);
}

}  // namespace
}  // namespace mayfly::elastic
