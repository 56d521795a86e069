#include "cli/progress_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace mayfly::cli {
namespace {

using ::testing::HasSubstr;

class ProgressLineTest : public ::testing::Test {
 protected:
  ProgressLine make(bool is_terminal, bool quiet = false) {
    return ProgressLine(results_, progress_, {is_terminal, quiet}, [this] { return now_; });
  }
  void step(ProgressLine& line, std::uint64_t number, std::uint64_t total = 1000) const {
    engine::StepRecord metric;
    metric.step = number;
    metric.samples = 128;
    metric.loss = 1.5;
    metric.images_per_second = 1280;
    metric.members = 4;
    line.on_step(metric, total);
  }
  [[nodiscard]] std::size_t lines() const {
    const std::string text = progress_.str();
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }

  std::ostringstream results_;
  std::ostringstream progress_;
  Instant now_{1'000'000'000};
};

TEST_F(ProgressLineTest, OnATerminalOneLineIsRewritten) {
  {
    ProgressLine line = make(true);
    step(line, 400);
    EXPECT_EQ(progress_.str(),
              "step 400/1000  epoch 0.00  loss 1.5000  1280 images/s  4 workers  1:00 left");
    now_ = now_ + milliseconds(50);
    step(line, 401);
    EXPECT_EQ(progress_.str().find("step 401"), std::string::npos) << "rewritten too often";
    now_ = now_ + milliseconds(60);
    step(line, 402);
    EXPECT_THAT(progress_.str(), HasSubstr("\r\x1b[Kstep 402/1000"));
    line.on_event("worker 2 lost");
    EXPECT_THAT(progress_.str(), HasSubstr("\r\x1b[Kworker 2 lost\nstep 402/1000"));
  }
  EXPECT_TRUE(progress_.str().ends_with("\r\x1b[K"));
}

TEST_F(ProgressLineTest, ThatNothingIsLeftIsAResultAndNoEvent) {
  ProgressLine line = make(false, true);
  line.on_event("worker 2 lost");
  line.on_nothing_left("nothing is left to do");
  EXPECT_EQ(progress_.str(), "");
  EXPECT_EQ(results_.str(), "nothing is left to do\n");
}

TEST_F(ProgressLineTest, ElsewhereAPlainLinePerTwentiethOrTenSeconds) {
  ProgressLine line = make(false);
  step(line, 1);
  EXPECT_EQ(lines(), 1u);
  now_ = now_ + seconds(2);
  step(line, 49);
  EXPECT_EQ(lines(), 1u);
  step(line, 50);
  EXPECT_EQ(lines(), 2u);
  now_ = now_ + milliseconds(500);
  step(line, 100);
  EXPECT_EQ(lines(), 2u) << "at most one per second";
  now_ = now_ + seconds(10);
  step(line, 101);
  EXPECT_EQ(lines(), 3u);
  now_ = now_ + milliseconds(1);
  step(line, 1000);
  EXPECT_EQ(lines(), 4u) << "the last step always";
  EXPECT_EQ(progress_.str().find('\x1b'), std::string::npos);
}

TEST_F(ProgressLineTest, WaitingForDataIsShownWhereItIsMuch) {
  ProgressLine line = make(true);
  engine::StepRecord metric;
  metric.samples = 128;
  metric.images_per_second = 1280;  // 100 ms a step
  metric.data_wait_ms = 2;
  for (metric.step = 1; metric.step <= 200; ++metric.step) {
    now_ = now_ + milliseconds(200);
    line.on_step(metric, 1000);
  }
  EXPECT_EQ(progress_.str().find("waiting for data"), std::string::npos);
  metric.data_wait_ms = 25;
  for (; metric.step <= 400; ++metric.step) {
    now_ = now_ + milliseconds(200);
    line.on_step(metric, 1000);
  }
  EXPECT_THAT(progress_.str(), HasSubstr("25 % waiting for data"));
}

TEST_F(ProgressLineTest, QuietShowsOnlyTheSummary) {
  ProgressLine line = make(true, true);
  step(line, 1);
  line.on_event("worker 2 lost");
  engine::Summary summary;
  summary.outcome = elastic::Outcome::kDone;
  summary.steps = 5;
  line.on_summary(summary);
  EXPECT_EQ(progress_.str(), "");
  EXPECT_EQ(results_.str(), engine::to_text(summary));
}

TEST_F(ProgressLineTest, ShowsNoTimeLeftThatItCannotKnow) {
  ProgressLine line = make(false);
  engine::StepRecord metric;
  metric.step = 1;
  metric.samples = 128;
  line.on_step(metric, 10);
  EXPECT_THAT(progress_.str(), HasSubstr("? left"));
}

}  // namespace
}  // namespace mayfly::cli
